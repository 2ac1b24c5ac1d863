/* SPDX-License-Identifier: MIT */
#include "mock.h"

#include <dlfcn.h>
#include <gpunvme/device.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "gpu/kernels/kernels.h"
#include "inside.h"
#include "os/nvidia/uapi/cuda.h"

#define REGISTRATIONS 256
#define ARGS_MAX 4096
#define DEVICES 8
#define FUNCTIONS 64
#define ALLOCATIONS 1024
#define CAPTURED 64
#define MODULES 64

static void forget(void);
static void replay(void);
static int have(size_t len);
static int lost(void);
static bool is_peer(int from, int of);
static int thread_mode(void);
static struct cuda_mock self = { .devices = 1, .major = 9, .pools = 1, .forget = forget, .have = have, .lost = lost, .is_peer = is_peer,
				.replay = replay, .thread_mode = thread_mode, .processors = 132, .groups = 2 };
static const char *modules[MODULES]; /* text of each that is loaded; protected by `lock` */
static _Thread_local int capture_mode = GNV_CUDA_CAPTURE_GLOBAL;
static struct {
	int references, sticky; /* atomic */
	int waited; /* calls that wait for its kernels; protected by `lock` */
	unsigned peers; /* whose memory of cuMemAlloc() its kernels access, by device (atomic) */
} primary[DEVICES]; /* contexts */
static _Thread_local int depth, stack[16]; /* of contexts, by device */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory {
	char *ptr; /* NULL: free */
	size_t len;
	int device; /* in whose context */
	uint64_t id; /* of memory of a GPU: CU_POINTER_ATTRIBUTE_BUFFER_ID */
	int kind; /* the same */
	bool gone; /* of cuMemAlloc(): it was freed, and the next one of this length has its address */
	bool managed;
} registered[REGISTRATIONS], allocated[ALLOCATIONS]; /* memory of the host, and of a GPU */
enum { OF_POOL, OF_ALLOC, OF_MANAGED }; /* cuMemAllocAsync(), cuMemAlloc(), cuMemAllocManaged() */
static uint64_t last_id;

struct function {
	const char *name;
	int (*launch)(uint32_t lanes, uint32_t width, void *args);
	size_t args;
};

#define LAUNCH(upper, lower)                                                                                                       \
	static int launch_##lower(uint32_t lanes, uint32_t width, void *args)                                                      \
	{                                                                                                                          \
		return gpunvme_cpu_launch(lanes, width, gnv_kernel_cpu[GNV_KERNEL_##upper], args);                                 \
	}
GNV_KERNEL_LIST(LAUNCH)

#define FUNCTION(upper, lower) { "gnvk_" #lower, launch_##lower, sizeof(struct gnv_##lower##_args) },
static struct function functions[FUNCTIONS] = { GNV_KERNEL_LIST(FUNCTION) };

struct stream {
	struct stream *next; /* of all there are */
	pthread_mutex_t lock;
	int busy, orphan, device;
	uint64_t stamp; /* of its last launch */
	const struct function *kernel;
	unsigned lanes, width;
	uint64_t args[ARGS_MAX / 8];
	struct stream *next_launch; /* NULL: none waits. Only where kernels get no multiprocessor: else the launch waits itself */
};

/* CU_STREAM_LEGACY (or NULL) of each device, and CU_STREAM_PER_THREAD, here of one thread. */
static struct stream legacy[DEVICES] = { [0 ... DEVICES - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER } };
static struct stream per_thread[DEVICES] = { [0 ... DEVICES - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER } };

/* Nodes of the graph of mock.capture: the driver copies a kernel's arguments when it is captured. */
static struct stream captured[CAPTURED];
static unsigned nodes;

PUBLIC struct cuda_mock *cuda_mock(void)
{
	return &self;
}

static void broke(const char *rule)
{
	if (!self.broke)
		self.broke = rule;
}

static void count(int *counter, int by)
{
	if (__atomic_add_fetch(counter, by, __ATOMIC_ACQ_REL) < 0)
		broke("something was given back twice");
}

static uint64_t launches; /* so far (atomic) */
static struct stream *streams; /* protected by `lock` */

#define ALL (-1)

/* The context that is current has ended with this error, or 0. */
static int sticky(void)
{
	return depth ? __atomic_load_n(&primary[stack[(depth - 1) % 16]].sticky, __ATOMIC_ACQUIRE) : 0;
}

/* Does the stream run a kernel that was launched before? */
static bool runs_up_to(const struct stream *s, uint64_t limit, int device)
{
	return __atomic_load_n(&s->busy, __ATOMIC_ACQUIRE) && __atomic_load_n(&s->stamp, __ATOMIC_ACQUIRE) <= limit &&
	       (device == ALL || s->device == device);
}

static bool runs_one_up_to(uint64_t limit, int device)
{
	const struct stream *s;
	bool found = false;
	int i;

	for (i = 0; i < DEVICES && !found; i++)
		found = runs_up_to(&legacy[i], limit, device) || runs_up_to(&per_thread[i], limit, device);
	pthread_mutex_lock(&lock);
	for (s = streams; s && !found; s = s->next)
		found = runs_up_to(s, limit, device);
	pthread_mutex_unlock(&lock);
	return found;
}

static void change_waited(int device, int by)
{
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < DEVICES; i++)
		if (device == ALL || i == device)
			primary[i].waited += by;
	pthread_mutex_unlock(&lock);
}

/*
 * What waits for all kernels of the context, as seen with driver 580.159 on an H200: loading and unloading code, unregistering memory,
 * cuMemFree(), releasing the context: next to a kernel that never ended they did not return. Not: registering, allocating, mapping
 * and unmapping (cuMemMap), streams, and all that is ordered by streams. Meanwhile no kernel and no copy begins: a
 * drive on the same GPU, which was launched again and again by another thread, did not go on there.
 */
static void wait_for_kernels(const char *call, int device)
{
	const struct timespec ms = { 0, 1000000 };
	uint64_t limit;
	unsigned waited;

	change_waited(device, 1);
	limit = __atomic_load_n(&launches, __ATOMIC_ACQUIRE);
	__atomic_fetch_add(&self.waiting, 1, __ATOMIC_ACQ_REL);
	for (waited = 0; runs_one_up_to(limit, device) && waited < 30000; waited += !__atomic_load_n(&self.endless, __ATOMIC_ACQUIRE))
		nanosleep(&ms, NULL);
	if (waited == 30000) {
		fprintf(stderr, "mock: %s waits for a kernel that does not end\n", call);
		broke(call);
	}
	__atomic_fetch_sub(&self.waiting, 1, __ATOMIC_ACQ_REL);
	change_waited(device, -1);
}

/* Return: with `lock`, and no call waits for the kernels of this context. */
static void lock_unwaited(int device)
{
	const struct timespec pause = { 0, 20000 };

	pthread_mutex_lock(&lock);
	while (primary[device].waited) {
		pthread_mutex_unlock(&lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&lock);
	}
}

static void await_no_wait(void)
{
	lock_unwaited(stack[(depth - 1) % 16]);
	pthread_mutex_unlock(&lock);
}

/*
 * Every call begins with this. After a kernel has failed all calls return its error, except those on the stack of contexts and
 * those that retain and release one (seen with the same driver).
 */
static int asked(const char *call, bool context)
{
	const char *fail = __atomic_load_n(&self.fail, __ATOMIC_ACQUIRE);

	if (context && !depth)
		broke(call);
	if (context && sticky())
		return sticky();
	if (!fail || strcmp(fail, call) != 0)
		return 0;
	if (self.skip)
		return self.skip--, 0;
	if (__atomic_add_fetch(&self.failed, 1, __ATOMIC_ACQ_REL) == self.most)
		__atomic_store_n(&self.fail, NULL, __ATOMIC_RELEASE);
	return self.error;
}
#define ASKED(context)                                                                                                             \
	do {                                                                                                                       \
		int error_ = asked(__func__, context);                                                                             \
		if (error_)                                                                                                        \
			return error_;                                                                                             \
	} while (0)

/*
 * Calls that a thread must not make while a stream is captured, unless its mode is relaxed: they fail, and the capture is lost. Seen
 * with driver 580.159 on an H200, of all calls here. Loading code is none of them.
 */
#define ASKED_UNSAFE(context)                                                                                                      \
	do {                                                                                                                       \
		ASKED(context);                                                                                                    \
		if (self.capture && capture_mode != GNV_CUDA_CAPTURE_RELAXED) {                                                    \
			__atomic_store_n(&self.capture_lost, true, __ATOMIC_RELEASE);                                              \
			return GNV_CUDA_CAPTURE_UNSUPPORTED;                                                                       \
		}                                                                                                                  \
	} while (0)

PUBLIC gnv_cuda_capture_mode_fn cuThreadExchangeStreamCaptureMode;
PUBLIC int cuThreadExchangeStreamCaptureMode(int *mode)
{
	const int before = capture_mode;

	ASKED(false);
	if (*mode < GNV_CUDA_CAPTURE_GLOBAL || *mode > GNV_CUDA_CAPTURE_RELAXED)
		return GNV_CUDA_INVALID_VALUE;
	capture_mode = *mode;
	*mode = before;
	return 0;
}

PUBLIC int cuInit(unsigned flags);
PUBLIC int cuInit(unsigned flags)
{
	ASKED(false);
	return flags ? GNV_CUDA_INVALID_VALUE : 0;
}

PUBLIC gnv_cuda_error_fn cuGetErrorString;
PUBLIC int cuGetErrorString(int error, const char **text)
{
	*text = error == GNV_CUDA_OUT_OF_MEMORY ? "out of memory" : error == GNV_CUDA_NO_DEVICE ? "no device" : "some error";
	return 0;
}

PUBLIC gnv_cuda_count_fn cuDeviceGetCount;
PUBLIC int cuDeviceGetCount(int *devices)
{
	ASKED(false);
	*devices = self.devices;
	return 0;
}

PUBLIC gnv_cuda_device_fn cuDeviceGet;
PUBLIC int cuDeviceGet(int *device, int index)
{
	ASKED(false);
	*device = 40 + index;
	return index < self.devices ? 0 : GNV_CUDA_INVALID_DEVICE;
}

PUBLIC gnv_cuda_name_fn cuDeviceGetName;
PUBLIC int cuDeviceGetName(char *name, int len, int device)
{
	ASKED(false);
	snprintf(name, (size_t)len, "mock %d", device - 40);
	return 0;
}

PUBLIC gnv_cuda_attribute_fn cuDeviceGetAttribute;
PUBLIC int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	(void)device;
	ASKED(false);
	*value = attribute == GNV_CUDA_CAPABILITY_MAJOR ? self.major : attribute == GNV_CUDA_CAPABILITY_MINOR ? self.minor :
		 attribute == GNV_CUDA_MULTIPROCESSORS	? self.processors : self.pools;
	return 0;
}

PUBLIC gnv_cuda_retain_fn cuDevicePrimaryCtxRetain;
PUBLIC int cuDevicePrimaryCtxRetain(void **context, int device)
{
	ASKED(false);
	count(&self.contexts, 1);
	count(&primary[device - 40].references, 1);
	*context = &primary[device - 40];
	return 0;
}

/*
 * The last reference ends the context and all that was made in it (CUDA driver API, cuDevicePrimaryCtxRelease and
 * cuDevicePrimaryCtxReset). Memory that is registered there is pinned no more, for other contexts either.
 */
PUBLIC gnv_cuda_release_fn cuDevicePrimaryCtxRelease_v2;
PUBLIC int cuDevicePrimaryCtxRelease_v2(int device)
{
	int i;

	if (__atomic_load_n(&primary[device - 40].references, __ATOMIC_ACQUIRE) == 1)
		wait_for_kernels(__func__, device - 40);
	count(&self.contexts, -1);
	count(&primary[device - 40].references, -1);
	pthread_mutex_lock(&lock);
	for (i = 0; i < DEVICES && !primary[device - 40].references; i++)
		primary[i].peers = i == device - 40 ? 0 : primary[i].peers & ~(1u << (device - 40));
	for (i = 0; i < REGISTRATIONS && !__atomic_load_n(&primary[device - 40].references, __ATOMIC_ACQUIRE); i++)
		if (registered[i].ptr && registered[i].device == device - 40) {
			registered[i].ptr = NULL;
			count(&self.registrations, -1);
		}
	for (i = 0; i < ALLOCATIONS && !__atomic_load_n(&primary[device - 40].references, __ATOMIC_ACQUIRE); i++)
		if (allocated[i].ptr && !allocated[i].gone && allocated[i].kind != OF_POOL && allocated[i].device == device - 40) {
			allocated[i].gone = !mprotect(allocated[i].ptr, allocated[i].len, PROT_NONE);
			count(&self.allocations, -1);
		}
	pthread_mutex_unlock(&lock);
	return 0;
}

PUBLIC gnv_cuda_push_fn cuCtxPushCurrent_v2;
PUBLIC int cuCtxPushCurrent_v2(void *context)
{
	int device;

	ASKED(false);
	for (device = 0; device < DEVICES - 1 && context != &primary[device]; device++)
		;
	if (context != &primary[device] || !__atomic_load_n(&primary[device].references, __ATOMIC_ACQUIRE))
		broke("a context that does not exist was made current");
	stack[depth++ % 16] = device;
	return 0;
}

PUBLIC gnv_cuda_pop_fn cuCtxPopCurrent_v2;
PUBLIC int cuCtxPopCurrent_v2(void **context)
{
	if (--depth < 0)
		broke("no context to pop");
	*context = &primary[stack[depth % 16]];
	return 0;
}

/* ---- Kernels ---- */

PUBLIC gnv_cuda_load_fn cuModuleLoadDataEx;
PUBLIC int cuModuleLoadDataEx(void **module, const void *image, unsigned options, int *option, void **values)
{
	const struct timespec compiling = { 0, 1000000 };
	int error = asked(__func__, true), i;

	if (options != 2 || option[0] != GNV_CUDA_JIT_ERROR_LOG || option[1] != GNV_CUDA_JIT_ERROR_LOG_SIZE)
		broke("cuModuleLoadDataEx: unexpected options");
	else if (error)
		snprintf(values[0], (size_t)(uintptr_t)values[1], "line 1: not for me\nand more");
	if (error)
		return error;
	wait_for_kernels(__func__, stack[(depth - 1) % 16]);
	nanosleep(&compiling, NULL);
	if (!strstr(image, ".version") || !strstr(image, ".target sm_"))
		broke("cuModuleLoadDataEx: this is no PTX");
	pthread_mutex_lock(&lock);
	for (i = 0; i < MODULES - 1 && modules[i]; i++)
		;
	modules[i] = image;
	pthread_mutex_unlock(&lock);
	count(&self.modules, 1);
	*module = &modules[i];
	return 0;
}

PUBLIC gnv_cuda_unload_fn cuModuleUnload;
PUBLIC int cuModuleUnload(void *module)
{
	const char **text = module;

	ASKED_UNSAFE(true);
	if (text < modules || text >= modules + MODULES || !*text)
		broke("cuModuleUnload");
	wait_for_kernels(__func__, stack[(depth - 1) % 16]);
	pthread_mutex_lock(&lock);
	*text = NULL;
	pthread_mutex_unlock(&lock);
	count(&self.modules, -1);
	return 0;
}

/* One of the library's, or a launcher NAME of the program with the size of its arguments in NAME_args. */
static struct function *find_function(const char *name)
{
	char size[128];
	struct function *f;
	void *symbol;

	for (f = functions; f->name && strcmp(f->name, name) != 0; f++)
		;
	if (f->name)
		return f;
	snprintf(size, sizeof(size), "%s_args", name);
	symbol = dlsym(RTLD_DEFAULT, name);
	if (!symbol || !dlsym(RTLD_DEFAULT, size) || f == functions + FUNCTIONS - 1)
		return NULL;
	f->name = strdup(name);
	memcpy(&f->launch, &symbol, sizeof(symbol));
	memcpy(&f->args, dlsym(RTLD_DEFAULT, size), sizeof(f->args));
	return f;
}

PUBLIC gnv_cuda_function_fn cuModuleGetFunction;
PUBLIC int cuModuleGetFunction(void **function, void *module, const char *name)
{
	char entry[128];

	ASKED(true);
	snprintf(entry, sizeof(entry), ".entry %s(", name);
	if (module && !strstr(*(const char **)module, entry)) /* NULL: a kernel of the test */
		return 500; /* CUDA_ERROR_NOT_FOUND */
	pthread_mutex_lock(&lock);
	*function = find_function(name);
	pthread_mutex_unlock(&lock);
	return *function ? 0 : GNV_CUDA_INVALID_VALUE;
}

PUBLIC gnv_cuda_occupancy_fn cuOccupancyMaxActiveBlocksPerMultiprocessor;
PUBLIC int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *groups, void *function, int group_lanes, size_t shared)
{
	ASKED(true);
	if (!function || group_lanes < 1 || shared)
		return GNV_CUDA_INVALID_VALUE;
	*groups = self.groups;
	return 0;
}

static void end_stream(struct stream *s)
{
	struct stream **link;

	pthread_mutex_lock(&lock);
	for (link = &streams; *link != s; link = &(*link)->next)
		;
	*link = s->next;
	pthread_mutex_unlock(&lock);
	pthread_mutex_destroy(&s->lock);
	free(s);
	count(&self.streams, -1);
}

static void wait_for_room(const struct function *kernel)
{
	const struct timespec pause = { 0, 20000 };

	while (__atomic_load_n(&self.full, __ATOMIC_ACQUIRE) && strcmp(kernel->name, "endless_kernel") != 0)
		nanosleep(&pause, NULL);
}

static bool take_next_launch(struct stream *s)
{
	struct stream *next;

	pthread_mutex_lock(&s->lock);
	next = s->next_launch;
	s->next_launch = NULL;
	if (next)
		memcpy(s->args, next->args, sizeof(s->args)); /* of the same kernel */
	pthread_mutex_unlock(&s->lock);
	free(next);
	return next;
}

/* Return: the launch waits for the one before it. */
static bool queue_launch(struct stream *s, const struct function *kernel, const void *args)
{
	struct stream *next = calloc(1, sizeof(*next));
	bool waits;

	memcpy(next->args, args, kernel->args);
	pthread_mutex_lock(&s->lock);
	waits = s->busy && s->kernel == kernel && !s->next_launch;
	s->next_launch = waits ? next : s->next_launch;
	pthread_mutex_unlock(&s->lock);
	if (!waits)
		free(next);
	return waits;
}

static void *run(void *arg)
{
	struct stream *s = arg;
	bool orphan;
	int error;

	do {
		wait_for_room(s->kernel);
		if (s->kernel->launch(s->lanes, s->width, s->args))
			broke("no threads for a kernel");
	} while (take_next_launch(s));
	error = __atomic_exchange_n(&self.kernel_error, 0, __ATOMIC_ACQ_REL);
	if (error)
		__atomic_store_n(&primary[s->device].sticky, error, __ATOMIC_RELEASE);
	pthread_mutex_lock(&s->lock);
	__atomic_store_n(&s->busy, 0, __ATOMIC_RELEASE);
	orphan = s->orphan;
	pthread_mutex_unlock(&s->lock);
	if (orphan)
		end_stream(s);
	count(&self.running, -1);
	return NULL;
}

/* Kernels of a stream run one after the other. Here the launch waits, which the real one does not. */
static void wait_for_turn(struct stream *s)
{
	const struct timespec pause = { 0, 20000 };
	int busy;

	do {
		pthread_mutex_lock(&s->lock);
		busy = s->busy;
		pthread_mutex_unlock(&s->lock);
		if (busy)
			nanosleep(&pause, NULL);
	} while (busy);
}

static void wait_for_others(void)
{
	const struct timespec pause = { 0, 20000 };

	count(&self.launching, 1);
	while (__atomic_load_n(&self.held, __ATOMIC_ACQUIRE))
		nanosleep(&pause, NULL);
	count(&self.launching, -1);
}

/* The stream of a handle, in the current context. */
static struct stream *stream_of(void *handle)
{
	const int device = depth ? stack[(depth - 1) % 16] : 0;
	struct stream *s = (uintptr_t)handle < 2 ? &legacy[device] : (uintptr_t)handle == 2 ? &per_thread[device] : handle;

	if ((uintptr_t)handle <= 2)
		s->device = device;
	return s;
}

/* Of NULL and the two constants: the context that is current (seen with driver 580, also while a stream is captured). */
PUBLIC gnv_cuda_stream_context_fn cuStreamGetCtx;
PUBLIC int cuStreamGetCtx(void *stream, void **context)
{
	ASKED(true);
	*context = stream && stream == self.foreign_stream ? (void *)&self : (void *)&primary[stream_of(stream)->device];
	return 0;
}

static int begin(struct stream *s)
{
	pthread_t thread;

	lock_unwaited(s->device);
	__atomic_store_n(&s->stamp, __atomic_add_fetch(&launches, 1, __ATOMIC_ACQ_REL), __ATOMIC_RELEASE);
	__atomic_store_n(&s->busy, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	count(&self.running, 1);
	if (pthread_create(&thread, NULL, run, s)) {
		__atomic_store_n(&s->busy, 0, __ATOMIC_RELEASE);
		count(&self.running, -1);
		return GNV_CUDA_OUT_OF_MEMORY;
	}
	pthread_detach(thread);
	return 0;
}

/* As cuGraphLaunch() of what was captured, and a wait for its end. */
static void replay(void)
{
	struct stream *s = &legacy[0];
	unsigned i;

	for (i = 0; i < nodes; i++) {
		wait_for_turn(s);
		s->kernel = captured[i].kernel;
		s->lanes = captured[i].lanes;
		s->width = captured[i].width;
		memcpy(s->args, captured[i].args, sizeof(s->args));
		if (begin(s))
			broke("no threads for a node");
	}
	wait_for_turn(s);
}

/* A group of up to 32 threads is one wave, so that it is a workgroup too; larger ones are waves of 32. */
PUBLIC gnv_cuda_launch_fn cuLaunchKernel;
PUBLIC int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
			  void *stream, void **params, void **extra)
{
	struct stream *s = stream_of(stream);

	ASKED(true);
	if (stream && stream == self.foreign_stream)
		return 400; /* CUDA_ERROR_INVALID_HANDLE */
	if (!gx || gy != 1 || gz != 1 || !bx || by != 1 || bz != 1 || bx > 1024 || shared || extra)
		broke("cuLaunchKernel: arguments");
	if (self.capture && stream == self.capture) {
		if (__atomic_load_n(&self.capture_lost, __ATOMIC_ACQUIRE))
			return GNV_CUDA_CAPTURE_INVALIDATED;
		if (nodes == CAPTURED)
			return GNV_CUDA_OUT_OF_MEMORY;
		s = &captured[nodes++];
	}
	wait_for_others();
	if (__atomic_load_n(&self.full, __ATOMIC_ACQUIRE) && queue_launch(s, function, params[0]))
		return 0;
	wait_for_turn(s);
	if (sticky()) /* nothing runs after a kernel that failed */
		return sticky();
	s->kernel = function;
	memcpy(s->args, params[0], s->kernel->args);
	s->lanes = gx * bx;
	s->width = bx <= 32 ? bx : bx % 32 ? 1 : 32;
	return self.capture && stream == self.capture ? 0 : begin(s);
}

PUBLIC gnv_cuda_stream_create_fn cuStreamCreate;
PUBLIC int cuStreamCreate(void **stream, unsigned flags)
{
	struct stream *s;

	ASKED(true);
	if (flags != GNV_CUDA_STREAM_NON_BLOCKING)
		broke("a stream that waits for the kernels of others");
	s = calloc(1, sizeof(*s));
	s->device = stack[(depth - 1) % 16];
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_lock(&lock);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&lock);
	count(&self.streams, 1);
	*stream = s;
	return 0;
}

PUBLIC gnv_cuda_stream_urgent_fn cuStreamCreateWithPriority;
PUBLIC int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
	ASKED(true);
	if (priority > -5) /* the range of an H200 is 0 to -5, and what is beyond is taken for its end */
		broke("a stream of no high priority");
	return cuStreamCreate(stream, flags);
}

PUBLIC gnv_cuda_stream_fn cuStreamDestroy_v2;
PUBLIC int cuStreamDestroy_v2(void *stream)
{
	struct stream *s = stream;
	bool busy;

	pthread_mutex_lock(&s->lock);
	busy = s->busy;
	s->orphan = 1;
	pthread_mutex_unlock(&s->lock);
	if (!busy)
		end_stream(s);
	return sticky();
}

PUBLIC gnv_cuda_stream_fn cuStreamQuery;
PUBLIC int cuStreamQuery(void *stream)
{
	struct stream *s = stream_of(stream);
	bool busy;

	ASKED_UNSAFE(true);
	pthread_mutex_lock(&s->lock);
	busy = s->busy;
	pthread_mutex_unlock(&s->lock);
	return busy ? GNV_CUDA_NOT_READY : 0;
}

PUBLIC gnv_cuda_stream_fn cuStreamSynchronize;
PUBLIC int cuStreamSynchronize(void *stream)
{
	ASKED_UNSAFE(true);
	wait_for_turn(stream_of(stream));
	return sticky();
}

/* ---- Events: what the Python module uses ---- */

struct event {
	struct stream *stream; /* NULL: not recorded, or in a context */
	int device;	       /* whose context, or ALL */
	uint64_t stamp;	       /* of the last launch before it */
};

PUBLIC int cuStreamIsCapturing(void *stream, int *state);
PUBLIC int cuStreamIsCapturing(void *stream, int *state)
{
	ASKED(true);
	*state = self.capture && stream == self.capture;
	return 0;
}

PUBLIC int cuEventCreate(struct event **event, unsigned flags);
PUBLIC int cuEventCreate(struct event **event, unsigned flags)
{
	ASKED(true);
	if (flags != 2) /* CU_EVENT_DISABLE_TIMING */
		broke("an event that takes the time");
	*event = calloc(1, sizeof(**event));
	(*event)->device = ALL;
	count(&self.events, 1);
	return *event ? 0 : GNV_CUDA_OUT_OF_MEMORY;
}

PUBLIC int cuEventDestroy_v2(struct event *event);
PUBLIC int cuEventDestroy_v2(struct event *event)
{
	ASKED(true);
	free(event);
	count(&self.events, -1);
	return 0;
}

PUBLIC int cuEventRecord(struct event *event, void *stream);
PUBLIC int cuEventRecord(struct event *event, void *stream)
{
	ASKED(true);
	event->stream = stream_of(stream);
	event->stamp = __atomic_load_n(&event->stream->stamp, __ATOMIC_ACQUIRE);
	return 0;
}

/*
 * "Captures in hEvent all the activities of the context" (CUDA driver API, cuCtxRecordEvent), also in streams that wait for no other.
 * While a stream is captured there, the capture is lost, whatever the mode of the thread (seen with driver 580.159).
 */
PUBLIC int cuCtxRecordEvent(void *context, struct event *event);
PUBLIC int cuCtxRecordEvent(void *context, struct event *event)
{
	int device;

	ASKED(true);
	for (device = 0; device < DEVICES - 1 && context != &primary[device]; device++)
		;
	if (self.capture) {
		__atomic_store_n(&self.capture_lost, true, __ATOMIC_RELEASE);
		return GNV_CUDA_CAPTURE_UNSUPPORTED;
	}
	event->device = device;
	event->stamp = __atomic_load_n(&launches, __ATOMIC_ACQUIRE);
	return 0;
}

/* A mock GPU is threads of a machine that may be busy: kernels that end by themselves end before a query returns. */
static bool context_has_passed(const struct event *event)
{
	const struct timespec pause = { 0, 20000 };

	while (runs_one_up_to(event->stamp, event->device)) {
		if (__atomic_load_n(&self.endless, __ATOMIC_ACQUIRE))
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

/* Of the streams that there are: a stream that was destroyed ends when its kernel has. */
static bool has_passed(const struct event *event)
{
	const struct stream *s;
	bool found = false;
	int i;

	if (event->device != ALL)
		return context_has_passed(event);
	for (i = 0; i < DEVICES && !found; i++)
		found = (event->stream == &legacy[i] || event->stream == &per_thread[i]) && runs_up_to(event->stream, event->stamp, ALL);
	pthread_mutex_lock(&lock);
	for (s = streams; s && !found; s = s->next)
		found = s == event->stream && runs_up_to(s, event->stamp, ALL);
	pthread_mutex_unlock(&lock);
	return !found;
}

/* An event that was never recorded has passed (CUDA driver API, cuEventQuery). */
PUBLIC int cuEventQuery(const struct event *event);
PUBLIC int cuEventQuery(const struct event *event)
{
	ASKED_UNSAFE(true);
	return has_passed(event) ? 0 : GNV_CUDA_NOT_READY;
}

PUBLIC int cuStreamWaitEvent(void *stream, const struct event *event, unsigned flags);
PUBLIC int cuStreamWaitEvent(void *stream, const struct event *event, unsigned flags)
{
	const struct timespec pause = { 0, 20000 };

	(void)stream;
	ASKED(true);
	if (flags)
		broke("cuStreamWaitEvent: flags");
	while (!has_passed(event)) /* the real one does not wait here, but in the stream */
		nanosleep(&pause, NULL);
	return 0;
}

/* ---- Memory ---- */

/* The one that shares a byte with that range. */
static int find(const char *ptr, size_t len)
{
	int i;

	for (i = 0; i < REGISTRATIONS && (!registered[i].ptr || ptr >= registered[i].ptr + registered[i].len ||
					  registered[i].ptr >= ptr + len); i++)
		;
	return i;
}

/* What overlaps is refused as what is the same (seen with driver 580.159). */
PUBLIC gnv_cuda_register_fn cuMemHostRegister_v2;
PUBLIC int cuMemHostRegister_v2(void *ptr, size_t len, unsigned flags)
{
	int ret = 0, at;

	ASKED_UNSAFE(true);
	if (flags & GNV_CUDA_REGISTER_IOMEMORY)
		return GNV_CUDA_INVALID_VALUE; /* as the driver says of ordinary memory */
	if (flags != (GNV_CUDA_REGISTER_PORTABLE | GNV_CUDA_REGISTER_DEVICEMAP) || !len)
		broke("cuMemHostRegister: arguments");
	pthread_mutex_lock(&lock);
	for (at = 0; at < REGISTRATIONS - 1 && registered[at].ptr; at++)
		;
	if (find(ptr, len) < REGISTRATIONS ||
	    (self.host.id && (char *)ptr < self.host.ptr + self.host.len && self.host.ptr < (char *)ptr + len)) {
		ret = GNV_CUDA_ALREADY_REGISTERED;
	} else {
		registered[at].ptr = ptr;
		registered[at].len = len;
		registered[at].device = stack[depth - 1];
	}
	pthread_mutex_unlock(&lock);
	if (!ret)
		count(&self.registrations, 1);
	return ret;
}

/* In the context that it was registered in: of another one the documentation guarantees nothing. */
PUBLIC gnv_cuda_unregister_fn cuMemHostUnregister;
PUBLIC int cuMemHostUnregister(void *ptr)
{
	int at;

	ASKED_UNSAFE(true);
	wait_for_kernels(__func__, stack[(depth - 1) % 16]);
	pthread_mutex_lock(&lock);
	at = find(ptr, 1);
	if (at < REGISTRATIONS && registered[at].ptr == ptr && registered[at].device == stack[depth - 1])
		registered[at].ptr = NULL;
	else
		broke("cuMemHostUnregister");
	pthread_mutex_unlock(&lock);
	count(&self.registrations, -1);
	return 0;
}

PUBLIC gnv_cuda_host_pointer_fn cuMemHostGetDevicePointer_v2;
PUBLIC int cuMemHostGetDevicePointer_v2(gnv_cuda_ptr *at, void *ptr, unsigned flags)
{
	bool known;

	ASKED(true);
	pthread_mutex_lock(&lock);
	known = find(ptr, 1) < REGISTRATIONS || (self.host.id && (uintptr_t)ptr - (uintptr_t)self.host.ptr < self.host.len);
	pthread_mutex_unlock(&lock);
	*at = (uintptr_t)ptr;
	return flags || !known ? GNV_CUDA_INVALID_VALUE : 0;
}

/*
 * Addresses of a GPU are none of the host's heap (CUDA C++ Programming Guide, Unified Virtual Address Space). An allocation of a pool
 * begins within a page, after another one, and freed memory faults.
 */
#define NEIGHBOUR 256

/* With the lock held. */
static void note_allocation(char *ptr, size_t len, int kind, bool managed)
{
	int i;

	for (i = 0; i < ALLOCATIONS - 1 && (allocated[i].ptr || allocated[i].gone); i++)
		;
	allocated[i] = (struct memory){ ptr, len, stack[(depth - 1) % 16], ++last_id, kind, false, managed };
}

/* With the lock held. Return: its bytes, 0: there is none. */
static size_t forget_allocation(const char *ptr)
{
	size_t len = 0;
	int i;

	for (i = 0; i < ALLOCATIONS && !len; i++)
		if (allocated[i].ptr == ptr && allocated[i].kind == OF_POOL) {
			len = allocated[i].len;
			allocated[i].ptr = NULL;
		}
	return len;
}

static int alloc_from_pool(gnv_cuda_ptr *at, size_t len, bool managed)
{
	char *base = mmap(NULL, NEIGHBOUR + len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED)
		return GNV_CUDA_OUT_OF_MEMORY;
	*at = (uintptr_t)base + NEIGHBOUR;
	pthread_mutex_lock(&lock);
	note_allocation(base, NEIGHBOUR, OF_POOL, managed);
	note_allocation(base + NEIGHBOUR, len, OF_POOL, managed);
	pthread_mutex_unlock(&lock);
	memset(base + NEIGHBOUR, 0xa7, len); /* a program that needs zeros asks for them */
	count(&self.allocations, 1);
	return 0;
}

PUBLIC gnv_cuda_alloc_fn cuMemAllocAsync;
PUBLIC int cuMemAllocAsync(gnv_cuda_ptr *at, size_t len, void *stream)
{
	(void)stream;
	ASKED_UNSAFE(true);
	return alloc_from_pool(at, len, false);
}

/* CUmemPoolProps begins with the type of allocations: CU_MEM_ALLOCATION_TYPE_MANAGED is 2 (CUDA 13). */
PUBLIC int cuMemPoolCreate(void **of, const int *props);
PUBLIC int cuMemPoolCreate(void **of, const int *props)
{
	static char managed_pool;

	*of = &managed_pool;
	return props[0] == 2 ? 0 : GNV_CUDA_INVALID_VALUE;
}

PUBLIC int cuMemPoolDestroy(void *of);
PUBLIC int cuMemPoolDestroy(void *of)
{
	(void)of;
	return 0;
}

PUBLIC int cuMemAllocFromPoolAsync(gnv_cuda_ptr *at, size_t len, void *of, void *stream);
PUBLIC int cuMemAllocFromPoolAsync(gnv_cuda_ptr *at, size_t len, void *of, void *stream)
{
	(void)of;
	(void)stream;
	return alloc_from_pool(at, len, true);
}

PUBLIC gnv_cuda_free_fn cuMemFreeAsync;
PUBLIC int cuMemFreeAsync(gnv_cuda_ptr at, void *stream)
{
	char *base = (char *)(uintptr_t)at - NEIGHBOUR;
	size_t len;

	(void)stream;
	ASKED_UNSAFE(false);
	pthread_mutex_lock(&lock);
	len = forget_allocation(base) ? NEIGHBOUR + forget_allocation(base + NEIGHBOUR) : 0;
	if (!len || mprotect(base, len, PROT_NONE) || madvise(base, len, MADV_DONTNEED))
		broke("cuMemFreeAsync");
	pthread_mutex_unlock(&lock);
	count(&self.allocations, -1);
	return sticky();
}

/*
 * What programs get from cudaMalloc(). "Subsequent allocations do not reuse IDs from previous freed allocations" (CUDA driver API,
 * CU_POINTER_ATTRIBUTE_BUFFER_ID), but they have the address of one of the same length, as those of the driver often have.
 */
static int alloc_alone(gnv_cuda_ptr *at, size_t len, int kind)
{
	void *ptr = NULL;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ALLOCATIONS - 1 && !(allocated[i].gone && allocated[i].len == len); i++)
		;
	if (allocated[i].gone && !mprotect((void *)allocated[i].ptr, len, PROT_READ | PROT_WRITE))
		ptr = allocated[i].ptr;
	for (i = ptr ? i : 0; !ptr && i < ALLOCATIONS - 1 && allocated[i].ptr; i++)
		;
	if (!ptr)
		ptr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ptr != MAP_FAILED)
		allocated[i] = (struct memory){ ptr, len, stack[(depth - 1) % 16], ++last_id, kind, false, kind == OF_MANAGED };
	pthread_mutex_unlock(&lock);
	*at = (uintptr_t)ptr;
	if (ptr == MAP_FAILED)
		return GNV_CUDA_OUT_OF_MEMORY;
	memset(ptr, 0xa7, len);
	count(&self.allocations, 1);
	return 0;
}

PUBLIC int cuMemAlloc_v2(gnv_cuda_ptr *at, size_t len);
PUBLIC int cuMemAlloc_v2(gnv_cuda_ptr *at, size_t len)
{
	ASKED_UNSAFE(true);
	return alloc_alone(at, len, OF_ALLOC);
}

PUBLIC int cuMemAllocManaged(gnv_cuda_ptr *at, size_t len, unsigned flags);
PUBLIC int cuMemAllocManaged(gnv_cuda_ptr *at, size_t len, unsigned flags)
{
	ASKED_UNSAFE(true);
	return flags == 1 ? alloc_alone(at, len, OF_MANAGED) : GNV_CUDA_INVALID_VALUE; /* CU_MEM_ATTACH_GLOBAL */
}

/*
 * "May perform implicit synchronization" (CUDA driver API, cuMemFree). An access to it ends the context on a GPU, and here the
 * program.
 */
PUBLIC int cuMemFree_v2(gnv_cuda_ptr at);
PUBLIC int cuMemFree_v2(gnv_cuda_ptr at)
{
	int i;

	ASKED_UNSAFE(true);
	wait_for_kernels(__func__, stack[(depth - 1) % 16]);
	pthread_mutex_lock(&lock);
	for (i = 0; i < ALLOCATIONS - 1 && !(allocated[i].ptr == (char *)(uintptr_t)at && !allocated[i].gone); i++)
		;
	if (allocated[i].ptr != (char *)(uintptr_t)at || allocated[i].kind == OF_POOL || mprotect(allocated[i].ptr, allocated[i].len, PROT_NONE))
		broke("cuMemFree");
	allocated[i].gone = true;
	pthread_mutex_unlock(&lock);
	count(&self.allocations, -1);
	return 0;
}

/* Memory of a GPU, or of the host that is registered: all of it in one allocation. */
static bool is_known(gnv_cuda_ptr at, size_t len)
{
	const char *ptr = (const char *)(uintptr_t)at;
	struct mapped mapped;
	bool known = false;
	int i;

	if (mapped_find(ptr, &mapped))
		return len <= (size_t)(mapped.ptr + mapped.len - ptr) ||
		       is_known((uintptr_t)mapped.ptr + mapped.len, len - (size_t)(mapped.ptr + mapped.len - ptr));
	pthread_mutex_lock(&lock);
	for (i = 0; i < ALLOCATIONS && !known; i++)
		known = allocated[i].ptr && !allocated[i].gone && ptr >= allocated[i].ptr && (size_t)(ptr - allocated[i].ptr) <= allocated[i].len &&
			len <= allocated[i].len - (size_t)(ptr - allocated[i].ptr);
	i = known ? REGISTRATIONS : find(ptr, 1);
	known |= i < REGISTRATIONS && ptr + len <= registered[i].ptr + registered[i].len;
	pthread_mutex_unlock(&lock);
	return known;
}

PUBLIC gnv_cuda_set_fn cuMemsetD8Async;
PUBLIC int cuMemsetD8Async(gnv_cuda_ptr at, unsigned char value, size_t len, void *stream)
{
	ASKED(true);
	if (!is_known(at, len))
		return GNV_CUDA_INVALID_VALUE;
	wait_for_turn(stream_of(stream));
	memset((void *)(uintptr_t)at, value, len);
	return 0;
}

/* Words whole, as a GPU's copies are. */
static void copy(uintptr_t to, uintptr_t from, size_t len)
{
	for (; len >= 8 && !((to | from) & 7); to += 8, from += 8, len -= 8)
		__atomic_store_n((uint64_t *)to, __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	for (; len; to++, from++, len--)
		__atomic_store_n((uint8_t *)to, __atomic_load_n((const uint8_t *)from, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

PUBLIC gnv_cuda_to_device_fn cuMemcpyHtoDAsync_v2;
PUBLIC int cuMemcpyHtoDAsync_v2(gnv_cuda_ptr at, const void *from, size_t len, void *stream)
{
	ASKED(true);
	if (!is_known(at, len))
		return GNV_CUDA_INVALID_VALUE;
	await_no_wait();
	wait_for_turn(stream_of(stream));
	copy((uintptr_t)at, (uintptr_t)from, len);
	return 0;
}

PUBLIC gnv_cuda_from_device_fn cuMemcpyDtoHAsync_v2;
PUBLIC int cuMemcpyDtoHAsync_v2(void *to, gnv_cuda_ptr at, size_t len, void *stream)
{
	ASKED(true);
	if (!is_known(at, len))
		return GNV_CUDA_INVALID_VALUE;
	await_no_wait();
	wait_for_turn(stream_of(stream));
	copy((uintptr_t)to, (uintptr_t)at, len);
	return 0;
}

/* Those that wait, as the Python module uses them. */
PUBLIC int cuMemcpyHtoD_v2(gnv_cuda_ptr at, const void *from, size_t len);
PUBLIC int cuMemcpyHtoD_v2(gnv_cuda_ptr at, const void *from, size_t len)
{
	ASKED_UNSAFE(true);
	return cuMemcpyHtoDAsync_v2(at, from, len, NULL);
}

PUBLIC int cuMemcpyDtoH_v2(void *to, gnv_cuda_ptr at, size_t len);
PUBLIC int cuMemcpyDtoH_v2(void *to, gnv_cuda_ptr at, size_t len)
{
	ASKED_UNSAFE(true);
	return cuMemcpyDtoHAsync_v2(to, at, len, NULL);
}

/*
 * Of memory of a GPU, and of what was registered: as driver 580 reports it for cuMemAlloc(), cuMemAllocAsync() and cuMemHostRegister(),
 * with the length that was asked for, and nothing after it was freed.
 */
static char pool[DEVICES]; /* the default one of each */

static struct memory find_memory(const char *ptr, bool *device)
{
	struct memory found = { 0 };
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ALLOCATIONS && !found.ptr; i++)
		if (allocated[i].ptr && !allocated[i].gone && ptr >= allocated[i].ptr && ptr < allocated[i].ptr + allocated[i].len)
			found = allocated[i];
	*device = found.ptr;
	i = found.ptr ? REGISTRATIONS : find(ptr, 1);
	if (i < REGISTRATIONS)
		found = registered[i];
	pthread_mutex_unlock(&lock);
	return found;
}

/* "Allocated by, mapped by, or registered with a CUcontext" (CU_POINTER_ATTRIBUTE_CONTEXT): memory of a pool is none of a context. */
static int find_context(const struct memory *memory, bool device, void **context)
{
	*context = self.foreign_memory == memory->ptr ? (void *)&self : (void *)&primary[memory->device];
	return device && memory->kind != OF_ALLOC ? GNV_CUDA_INVALID_VALUE : 0;
}

static int find_mapped_attribute(void *value, int attribute, const struct mapped *mapped)
{
	const unsigned bit = 1u << stack[(depth - 1) % 16];

	if (attribute == GNV_CUDA_POINTER_CONTEXT)
		return GNV_CUDA_INVALID_VALUE;
	if (attribute == GNV_CUDA_POINTER_TAG)
		*(uint64_t *)value = mapped->id;
	else if (attribute == GNV_CUDA_POINTER_BASE || attribute == GNV_CUDA_POINTER_MAPPING_BASE)
		*(gnv_cuda_ptr *)value = (uintptr_t)(attribute == GNV_CUDA_POINTER_BASE ? mapped->reserved : mapped->ptr);
	else if (attribute == GNV_CUDA_POINTER_LEN || attribute == GNV_CUDA_POINTER_MAPPING_LEN)
		*(size_t *)value = attribute == GNV_CUDA_POINTER_LEN ? mapped->reserved_len : mapped->len;
	else if (attribute == GNV_CUDA_POINTER_ORDINAL)
		*(int *)value = mapped->device;
	else if (attribute == GNV_CUDA_POINTER_ACCESS)
		*(uint64_t *)value = mapped->writers & bit ? GNV_CUDA_ACCESS_READWRITE : mapped->readers & bit ? 1 : 0;
	else if (attribute == GNV_CUDA_POINTER_MEMORY_TYPE)
		*(unsigned *)value = GNV_CUDA_MEMORY_DEVICE;
	else
		*(uint64_t *)value = 0; /* no pool, not managed, not legacy */
	return 0;
}

static int find_attribute(void *value, int attribute, gnv_cuda_ptr at)
{
	bool device;
	const struct memory found = find_memory((const char *)(uintptr_t)at, &device);
	struct mapped mapped;

	if (mapped_find((const char *)(uintptr_t)at, &mapped))
		return find_mapped_attribute(value, attribute, &mapped);
	if (!found.ptr || (attribute == GNV_CUDA_POINTER_TAG && !device))
		return GNV_CUDA_INVALID_VALUE;
	if (attribute == GNV_CUDA_POINTER_CONTEXT)
		return find_context(&found, device, value);
	if (attribute == GNV_CUDA_POINTER_TAG)
		*(uint64_t *)value = found.id;
	else if (attribute == GNV_CUDA_POINTER_BASE)
		*(gnv_cuda_ptr *)value = (uintptr_t)found.ptr;
	else if (attribute == GNV_CUDA_POINTER_LEN)
		*(size_t *)value = found.len;
	else if (attribute == GNV_CUDA_POINTER_ORDINAL)
		*(int *)value = found.device;
	else if (attribute == GNV_CUDA_POINTER_POOL)
		*(void **)value = device && found.kind == OF_POOL ? &pool[found.device] : NULL;
	else if (attribute == GNV_CUDA_POINTER_MANAGED)
		*(uint64_t *)value = found.managed;
	else if (attribute == GNV_CUDA_POINTER_MAPPING_BASE)
		*(gnv_cuda_ptr *)value = (uintptr_t)found.ptr & ~(uintptr_t)0x1fffff; /* of what the driver has allocated from */
	else if (attribute == GNV_CUDA_POINTER_MAPPING_LEN)
		*(size_t *)value = 2 << 20;
	else if (attribute == GNV_CUDA_POINTER_LEGACY_IPC) /* only memory of cudaMalloc() can be shared by cudaIpcGetMemHandle() */
		*(uint64_t *)value = device && found.kind == OF_ALLOC; /* the size of its boolean is not documented: the larger one */
	else
		*(unsigned *)value = device ? GNV_CUDA_MEMORY_DEVICE : 1; /* CU_MEMORYTYPE_HOST */
	return 0;
}

PUBLIC gnv_cuda_pointer_fn cuPointerGetAttribute;
PUBLIC int cuPointerGetAttribute(void *value, int attribute, gnv_cuda_ptr at)
{
	ASKED(attribute != GNV_CUDA_POINTER_TAG); /* of which driver 580 tells without a context, too */
	if (!self.host.id || at - (uintptr_t)self.host.ptr >= self.host.len)
		return find_attribute(value, attribute, at);
	if (attribute == GNV_CUDA_POINTER_TAG)
		*(uint64_t *)value = self.host.id;
	else if (attribute == GNV_CUDA_POINTER_BASE)
		*(gnv_cuda_ptr *)value = (uintptr_t)self.host.ptr;
	else if (attribute == GNV_CUDA_POINTER_LEN)
		*(size_t *)value = self.host.len;
	else if (attribute == GNV_CUDA_POINTER_MANAGED)
		*(uint64_t *)value = 0;
	else if (attribute == GNV_CUDA_POINTER_ORDINAL)
		*(int *)value = 0;
	else
		*(unsigned *)value = 1; /* CU_MEMORYTYPE_HOST */
	return 0;
}

PUBLIC gnv_cuda_can_peer_fn cuDeviceCanAccessPeer;
PUBLIC int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
	ASKED(false);
	if (device == peer) /* which returns 0 (CUDA runtime API, cudaDeviceCanAccessPeer) */
		broke("cuDeviceCanAccessPeer: a GPU and itself");
	*can = device != peer && !self.apart;
	return device - 40 < self.devices && peer - 40 < self.devices ? 0 : GNV_CUDA_INVALID_DEVICE;
}

/*
 * Memory of cuMemAlloc() in another context, for kernels of the current one (CUDA driver API, cuCtxEnablePeerAccess). It ends with
 * either context.
 */
PUBLIC gnv_cuda_peer_fn cuCtxEnablePeerAccess;
PUBLIC int cuCtxEnablePeerAccess(void *context, unsigned flags)
{
	int device;
	unsigned before;

	ASKED(true);
	for (device = 0; device < DEVICES - 1 && context != &primary[device]; device++)
		;
	if (flags)
		return GNV_CUDA_INVALID_VALUE;
	if (context != &primary[device] || device == stack[(depth - 1) % 16] || !primary[device].references)
		return 201; /* CUDA_ERROR_INVALID_CONTEXT */
	if (self.apart)
		return GNV_CUDA_PEER_UNSUPPORTED;
	before = __atomic_fetch_or(&primary[stack[(depth - 1) % 16]].peers, 1u << device, __ATOMIC_ACQ_REL);
	return before & 1u << device ? GNV_CUDA_PEER_ENABLED : 0;
}

static bool is_peer(int from, int of)
{
	return __atomic_load_n(&primary[from].peers, __ATOMIC_ACQUIRE) & 1u << of;
}

/* The location is an ordinal (CUmemLocation). Access of the GPU to its own pool cannot be changed. */
PUBLIC gnv_cuda_pool_access_fn cuMemPoolSetAccess;
PUBLIC int cuMemPoolSetAccess(void *of, const struct gnv_cuda_access *access, size_t count)
{
	const char *at = of;

	ASKED(false);
	if (at < pool || at >= pool + DEVICES || count != 1)
		broke("cuMemPoolSetAccess");
	if (access->type != GNV_CUDA_LOCATION_DEVICE || access->id < 0 || access->id >= self.devices || access->id == at - pool || self.apart)
		return GNV_CUDA_INVALID_VALUE;
	__atomic_fetch_or(&self.access[at - pool], access->flags == GNV_CUDA_ACCESS_READWRITE ? 1u << access->id : 0, __ATOMIC_ACQ_REL);
	return 0;
}

/* ---- For the other files ---- */

int mock_asked(const char *call, bool context)
{
	return asked(call, context);
}

void mock_broke(const char *rule)
{
	broke(rule);
}

uint64_t mock_next_id(void)
{
	uint64_t id;

	pthread_mutex_lock(&lock);
	id = ++last_id;
	pthread_mutex_unlock(&lock);
	return id;
}

static int thread_mode(void)
{
	return capture_mode;
}

static int have(size_t len)
{
	int i, n = 0;

	pthread_mutex_lock(&lock);
	for (i = 0; i < REGISTRATIONS; i++)
		n += registered[i].ptr && registered[i].len == len;
	pthread_mutex_unlock(&lock);
	return n;
}

/* Pages that are pinned and have no address any more: other memory may take it. */
static int lost(void)
{
	unsigned char there[1];
	int i, n = 0;

	pthread_mutex_lock(&lock);
	for (i = 0; i < REGISTRATIONS; i++)
		n += registered[i].ptr && mincore((void *)((uintptr_t)registered[i].ptr & ~(uintptr_t)4095), 1, there);
	pthread_mutex_unlock(&lock);
	return n;
}

/* As if another process began: the driver has taken what the first one had. */
static void forget(void)
{
	struct stream *s;

	wait_for_kernels(__func__, ALL);
	while ((s = streams)) {
		streams = s->next;
		free(s);
	}
	memset(registered, 0, sizeof(registered));
	memset(allocated, 0, sizeof(allocated));
	memset(self.access, 0, sizeof(self.access));
	self.endless = self.full = false;
	nodes = 0;
	self.capture = self.foreign_stream = NULL;
	memset(primary, 0, sizeof(primary));
	memset(modules, 0, sizeof(modules));
	self.capture_lost = false;
	self.kernel_error = 0;
	self.contexts = self.streams = self.modules = self.registrations = self.allocations = self.events = 0;
}
