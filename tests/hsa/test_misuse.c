/* SPDX-License-Identifier: MIT */
/* What a program can do wrong with memory and GPUs: a sentence with the remedy, nothing half-open, and the rest goes on. */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hsa/rig.h"
#include "mem/mem.h"
#include "os/amd/hsa_table.h"

#define BYTES 65536u

static char log_text[4096];
static hsa_status_t (*user_alloc)(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags, void **ptr);
static hsa_status_t (*user_free)(void *ptr);
static hsa_status_t (*user_export)(const void *ptr, size_t size, int *fd, uint64_t *offset);
static hsa_status_t (*user_export_close)(int fd);

static void keep_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	snprintf(log_text + strlen(log_text), sizeof(log_text) - strlen(log_text), "%s\n", text);
}

static void find(const char *name, void *function)
{
	*(void **)function = mock_symbol(name);
	assert_non_null(*(void **)function);
}

/* Two GPUs, each with a queue on the one controller. */
static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu[2];
static struct gpunvme_queue *qp[2];
static struct gpunvme_dq dq[2];

static int begin(void **state)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	int i;

	(void)state;
	find("hsa_amd_memory_pool_allocate", &user_alloc);
	find("hsa_amd_memory_pool_free", &user_free);
	find("hsa_amd_portable_export_dmabuf", &user_export);
	find("hsa_amd_portable_close_dmabuf", &user_export_close);
	pretend("MOCK_GPUS", "2");
	log_text[0] = '\0';
	opts.log = keep_log;
	assert_int_equal(gpunvme_dev_open(uri, &opts, &dev), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(gpunvme_gpu_open(i ? "hsa:1" : "hsa:0", NULL, &gpu[i]), 0);
		assert_int_equal(gpunvme_queue_create(dev, gpu[i], NULL, &qp[i]), 0);
		assert_int_equal(gpunvme_queue_view(qp[i], &view, &dq[i]), 0);
	}
	return 0;
}

static int end(void **state)
{
	int i;

	for (i = 0; i < 2; i++) {
		gpunvme_queue_destroy(qp[i]);
		gpunvme_gpu_close(gpu[i]);
	}
	gpunvme_dev_close(dev);
	return clear(state);
}

/* What hipMalloc() gives. */
static void *vram(int of, size_t len)
{
	void *ptr = NULL;

	assert_int_equal(user_alloc((hsa_amd_memory_pool_t){ POOL_FINE + (unsigned)of }, len, 0, &ptr), HSA_STATUS_SUCCESS);
	return ptr;
}

/* As munmap(), but nothing else comes to lie there: a controller that followed the address would write to it. */
static void unmap(void *ptr)
{
	assert_ptr_equal(mmap(ptr, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0), ptr);
}

static void says(const char *words)
{
	if (!strstr(gpunvme_errmsg(), words))
		fail_msg("'%s' does not say '%s'", gpunvme_errmsg(), words);
}

/* The first blocks of the pattern into the buffer. Return: as gpunvme_run_copy(). */
static int copy(int lanes, int queue, const struct gpunvme_dbuf *dbuf)
{
	struct gpunvme_copy c = GPUNVME_COPY_INIT;

	c.nblocks = BYTES / 512;
	c.threads = 32;
	return gpunvme_run_copy(gpu[lanes], &dq[queue], 1, dbuf, &c);
}

static void share(struct gpunvme_mem *mem, struct gpunvme_dbuf *dbuf)
{
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, dbuf), 0);
}

/* A buffer of the library's still works: whatever was refused has left nothing. */
static void works(int of)
{
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;
	unsigned i;

	assert_int_equal(gpunvme_mem_alloc(gpu[of], NULL, BYTES, NULL, &mem), 0);
	share(mem, &dbuf);
	assert_int_equal(copy(of, of, &dbuf), 0);
	for (i = 0; i < BYTES; i++)
		assert_int_equal(((unsigned char *)gpunvme_mem_ptr(mem))[i], pattern(i / 512));
	gpunvme_mem_free(mem);
}

static void test_not_memory(void **state)
{
	struct gpunvme_mem *mem = NULL;
	char *page = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *far = vram(0, BYTES);

	(void)state;
	assert_int_equal(gpunvme_mem_register(gpu[0], NULL, 4096, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_register(gpu[0], page + 8, 4096, &mem), -EINVAL);
	says("page of 4096 bytes");
	assert_int_equal(gpunvme_mem_register(gpu[0], page, 4096, &mem), -EFAULT);
	says("not all readable and writable");
	munmap(page, BYTES);
	assert_int_equal(gpunvme_mem_register(gpu[0], page, 4096, &mem), -EFAULT);
	assert_int_equal(gpunvme_mem_register(gpu[1], far, BYTES, &mem), -EXDEV);
	says("Register it with the GPU that it belongs to");
	assert_int_equal(gpunvme_mem_register(gpu[0], far + 4096, BYTES, &mem), -ERANGE);
	says("not within its allocation of 65536 bytes");
	pretend("MOCK_POINTERS", "6"); /* of hipMemMap() */
	assert_int_equal(gpunvme_mem_register(gpu[0], far, BYTES, &mem), -EOPNOTSUPP);
	says("hipMalloc()");
	unsetenv("MOCK_POINTERS");
	assert_null(mem);
	user_free(far);
	works(0);
}

/*
 * What hipHostMalloc() gives is the runtime's own memory, which it does not lock again. A GPU that had access to it keeps it.
 */
static void test_host_memory(void **state)
{
	hsa_status_t (*allow)(uint32_t agents, const hsa_agent_t *agent, const uint32_t *flags, const void *ptr);
	bool (*sees)(unsigned gpu, const void *ptr);
	const hsa_agent_t second = { AGENT_GPU + 1 };
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;
	void *ptr = NULL;
	unsigned i;

	(void)state;
	find("hsa_amd_agents_allow_access", &allow);
	find("mock_sees", &sees);
	assert_int_equal(user_alloc((hsa_amd_memory_pool_t){ POOL_HOST }, BYTES, 0, &ptr), HSA_STATUS_SUCCESS);
	assert_int_equal(allow(1, &second, NULL, ptr), HSA_STATUS_SUCCESS);
	assert_int_equal(gpunvme_mem_register(gpu[0], ptr, BYTES, &mem), 0);
	share(mem, &dbuf);
	assert_int_equal(copy(0, 0, &dbuf), 0);
	for (i = 0; i < BYTES; i++)
		assert_int_equal(((unsigned char *)ptr)[i], pattern(i / 512));
	assert_true(sees(0, ptr) && sees(1, ptr));
	gpunvme_mem_free(mem);
	assert_int_equal(gpunvme_mem_register(gpu[0], (char *)ptr + BYTES / 2, BYTES, &mem), -EFAULT); /* over its end */
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
	works(0);
}

/* Whether running threads may see old lines of registered memory depends on the kind of GPU, and the log says so. */
static void test_cached(void **state)
{
	static const struct {
		const char *gfx;
		uint64_t pool;
		uint32_t flags;
		bool cached;
	} table[] = {
		{ "gfx1100", POOL_LOCAL, 0, true },  { "gfx1100", POOL_LOCAL, 8, false }, { "gfx1100", POOL_FINE, 0, false },
		{ "gfx906", POOL_FINE, 0, false },   { "gfx90a", POOL_FINE, 0, true },	   { "gfx90a", POOL_FINE, 8, false },
		{ "gfx942", POOL_FINE, 0, true },    { "gfx942", POOL_FINE, 8, false },   { "gfx1201", POOL_FINE, 0, true },
		{ "gfx1201", POOL_FINE, 8, false },
	};
	struct gnv_log log = { .fn = keep_log };
	size_t i;

	(void)state;
	gpu[0]->log = log;
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct gpunvme_mem *mem;
		void *ptr = NULL;

		log_text[0] = '\0';
		snprintf((*(struct gnv_hsa **)gpu[0]->priv)->info.isa, 64, "amdgcn-amd-amdhsa--%s", table[i].gfx);
		assert_int_equal(user_alloc((hsa_amd_memory_pool_t){ table[i].pool }, BYTES, table[i].flags, &ptr), HSA_STATUS_SUCCESS);
		assert_int_equal(gpunvme_mem_register(gpu[0], ptr, BYTES, &mem), 0);
		if (!!strstr(log_text, "may be cached by this GPU") != table[i].cached)
			fail_msg("%s, pool 0x%x, flags %u: '%s'", table[i].gfx, (unsigned)table[i].pool, table[i].flags, log_text);
		gpunvme_mem_free(mem);
		assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
	}
	gpu[0]->log.fn = NULL;
}

/* gfx12 caches fine-grained memory too: without a runtime that makes uncached memory there is none for data, whatever is forced. */
static void test_gfx12(void **state)
{
	struct gnv_hsa *hsa;
	void *ptr;
	bool cpu;

	(void)state;
	pretend("MOCK_GFX", "gfx1201");
	pretend("MOCK_MINOR", "7");
	assert_int_equal(gnv_hsa_open("0", &hsa), 0);
	assert_int_equal(gnv_hsa_alloc(hsa, BYTES, true, &ptr, &cpu), -EOPNOTSUPP);
	says("Use ROCm 7.2 or newer");
	assert_null(strstr(gpunvme_errmsg(), "HSA_FORCE_FINE_GRAIN_PCIE"));
	gnv_hsa_close(hsa);
	pretend("MOCK_MINOR", "15");
	assert_int_equal(gnv_hsa_open("0", &hsa), 0);
	assert_int_equal(gnv_hsa_alloc(hsa, BYTES, true, &ptr, &cpu), 0);
	gnv_hsa_free(hsa, ptr);
	pretend("MOCK_FAIL", "amd_memory_pool_allocate:1:1001"); /* the flag is refused: nothing less will do */
	assert_int_equal(gnv_hsa_alloc(hsa, BYTES, true, &ptr, &cpu), -ENOMEM);
	gnv_hsa_close(hsa);
}

/* Of two kinds of fine-grained memory each family has one that is better, in whichever order they are listed (docs/kernel.md). */
static void test_extended(void **state)
{
	static const struct {
		const char *gfx;
		uint32_t kind; /* as in global_flags */
		bool cached;
	} table[] = {
		{ "gfx942", 8, true },
		{ "gfx950", 8, true },
		{ "gfx90a", HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED, true },
		{ "gfx906", HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED, false },
		{ "gfx1100", HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED, false },
	};
	hsa_status_t (*ask)(const void *ptr, hsa_amd_pointer_info_t *info, void *(*alloc)(size_t), uint32_t *agents, hsa_agent_t **able);
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };
	bool cached, reached;
	struct gnv_hsa *hsa;
	void *ptr, *cpu;
	uint64_t lane;
	size_t i;

	(void)state;
	find("hsa_amd_pointer_info", &ask);
	pretend("MOCK_MINOR", "7"); /* no uncached memory, which would be better than both */
	for (i = 0; i < 2 * sizeof(table) / sizeof(table[0]); i++) {
		pretend("MOCK_EXTENDED", i & 1 ? "2" : "1");
		pretend("MOCK_GFX", table[i / 2].gfx);
		assert_int_equal(gnv_hsa_open("0", &hsa), 0);
		assert_int_equal(gnv_hsa_alloc(hsa, BYTES, true, &ptr, &reached), 0);
		assert_int_equal(ask(ptr, &info, NULL, NULL, NULL), HSA_STATUS_SUCCESS);
		if (info.global_flags != table[i / 2].kind)
			fail_msg("%s, order %zu: memory with flags 0x%x", table[i / 2].gfx, i & 1, info.global_flags);
		assert_int_equal(gnv_hsa_pointer(hsa, ptr, BYTES, &cpu, &lane, &cached), 0);
		assert_int_equal(cached, table[i / 2].cached);
		gnv_hsa_free(hsa, ptr);
		gnv_hsa_close(hsa);
	}
}

/* Between registering and mapping the memory goes: the GPU cannot be given it. */
static void test_gone_before(void **state)
{
	void *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;

	(void)state;
	assert_int_equal(gpunvme_mem_register(gpu[0], page, BYTES, &mem), 0);
	munmap(page, BYTES);
	assert_int_equal(gpunvme_mem_map(mem, dev), -EIO);
	says("it cannot be given memory of the host");
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), -EINVAL);
	gpunvme_mem_free(mem);
	works(0);
}

/* Commands for memory that was freed while it is mapped fail; nobody follows its address. */
static void freed(void *ptr, bool of_gpu)
{
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;

	log_text[0] = '\0';
	assert_int_equal(gpunvme_mem_register(gpu[0], ptr, BYTES, &mem), 0);
	assert_int_equal(mem->local, of_gpu);
	share(mem, &dbuf);
	assert_int_equal(copy(0, 0, &dbuf), 0);
	if (of_gpu)
		assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
	else
		unmap(ptr);
	assert_int_equal(copy(0, 0, &dbuf) & (int)GPUNVME_ST_CODE, GPUNVME_SC_DATA_TRANSFER);
	gpunvme_mem_free(mem);
	works(0);
}

static void test_freed(void **state)
{
	(void)state;
	freed(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), false);
	assert_non_null(strstr(log_text, "does not reach its buffer (said once): it was freed while it was mapped"));
}

static void test_freed_vram(void **state)
{
	(void)state;
	freed(vram(0, BYTES), true);
	assert_non_null(strstr(log_text, "was freed while it was registered. Call gpunvme_mem_free() first"));
	pretend("MOCK_LACKS", "bar");
	freed(vram(0, BYTES), true);
}

/* The controller is closed over a mapping whose memory is gone, and over a queue. */
static void test_freed_close(void **state)
{
	char *ptr[2] = { vram(0, BYTES), mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) };
	struct gpunvme_mem *mem[2];
	struct gpunvme_dbuf dbuf;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		assert_int_equal(gpunvme_mem_register(gpu[0], ptr[i], BYTES, &mem[i]), 0);
		share(mem[i], &dbuf);
		assert_int_equal(copy(0, 0, &dbuf), 0);
	}
	user_free(ptr[0]);
	unmap(ptr[1]);
	assert_int_equal(copy(0, 0, &dbuf) & (int)GPUNVME_ST_CODE, GPUNVME_SC_DATA_TRANSFER);
	gpunvme_dev_close(dev);
	qp[0] = qp[1] = NULL;
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	munmap(ptr[1], BYTES);
	for (i = 0; i < 2; i++) {
		assert_int_equal(gpunvme_mem_map(mem[i], dev), i ? -EIO : -EFAULT);
		gpunvme_mem_free(mem[i]);
	}
}

struct reach {
	unsigned gpu;
	void *ptr;
	int ret;
};

static void *reach(void *arg)
{
	struct reach *r = arg;
	struct gnv_gpu_range range = { 0 };

	r->ret = gpu[r->gpu]->ops->host_attach(gpu[r->gpu], r->ptr, BYTES, &range);
	return NULL;
}

/* Two GPUs get memory of hipHostMalloc() at the same time, and each has it then. */
static void test_both(void **state)
{
	bool (*sees)(unsigned gpu, const void *ptr);
	struct reach r[2];
	pthread_t thread[2];
	void *ptr;

	(void)state;
	find("mock_sees", &sees);
	pretend("MOCK_LATE", "20");
	for (unsigned round = 0; round < 5; round++) {
		assert_int_equal(user_alloc((hsa_amd_memory_pool_t){ POOL_HOST }, BYTES, 0, &ptr), HSA_STATUS_SUCCESS);
		for (unsigned i = 0; i < 2; i++) {
			r[i] = (struct reach){ i, ptr, 1 };
			assert_int_equal(pthread_create(&thread[i], NULL, reach, &r[i]), 0);
		}
		for (unsigned i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(r[i].ret, 0);
			assert_true(sees(i, ptr));
		}
		user_free(ptr);
	}
}

/* The queue of that number once more, with a view that has these flags. */
static void view_anew(int i, uint32_t flags)
{
	struct gpunvme_view view = { sizeof(view), flags, 0, 0, 0 };

	gpunvme_queue_destroy(qp[i]);
	assert_int_equal(gpunvme_queue_create(dev, gpu[i], NULL, &qp[i]), 0);
	assert_int_equal(gpunvme_queue_view(qp[i], &view, &dq[i]), 0);
}

/* What a DMA-BUF of a GPU's memory is to that GPU's caches nobody tells. */
static void test_import_cached(void **state)
{
	const struct gpunvme_view plain = { sizeof(plain), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	void *ptr = vram(0, BYTES);
	struct gpunvme_dq any;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	uint64_t offset;
	int fd;

	(void)state;
	assert_int_equal(user_export(ptr, BYTES, &fd, &offset), HSA_STATUS_SUCCESS);
	assert_int_equal(gpunvme_mem_import_dmabuf(gpu[0], fd, offset, BYTES, &mem), 0);
	user_export_close(fd);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), -EOPNOTSUPP);
	says("GPUNVME_VIEW_FENCED");
	view_anew(0, GPUNVME_VIEW_WRITE | GPUNVME_VIEW_FENCED);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	assert_int_equal(gpunvme_queue_view(qp[0], &plain, &any), -EOPNOTSUPP);
	gpunvme_mem_free(mem);
	assert_int_equal(gpunvme_queue_view(qp[0], &plain, &any), 0);
	user_free(ptr);
}

/* The GPU that caches is the same one, whichever of its handles a queue or a memory has. */
static void test_handles(void **state)
{
	const struct gpunvme_view plain = { sizeof(plain), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	void *ptr = NULL;
	struct gpunvme_gpu *second;
	struct gpunvme_queue *other;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq any;

	(void)state;
	view_anew(0, GPUNVME_VIEW_WRITE | GPUNVME_VIEW_FENCED);
	assert_int_equal(user_alloc((hsa_amd_memory_pool_t){ POOL_LOCAL }, BYTES, 0, &ptr), HSA_STATUS_SUCCESS);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &second), 0);
	assert_int_equal(gpunvme_queue_create(dev, second, NULL, &other), 0);
	assert_int_equal(gpunvme_queue_view(other, &plain, &any), 0);
	assert_int_equal(gpunvme_mem_register(gpu[0], ptr, BYTES, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), -EOPNOTSUPP); /* after the view */
	gpunvme_queue_destroy(other);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0); /* that of hsa:1 is another GPU's */
	assert_int_equal(gpunvme_queue_create(dev, second, NULL, &other), 0);
	assert_int_equal(gpunvme_queue_view(other, &plain, &any), -EOPNOTSUPP); /* before it */
	gpunvme_queue_destroy(other);
	gpunvme_mem_free(mem);
	gpunvme_gpu_close(second);
	user_free(ptr);
}

/* The DMA-BUF is the library's own from the import on. */
static void test_closed_export(void **state)
{
	void *ptr = vram(0, BYTES);
	struct gpunvme_mem *mem = NULL;
	struct gpunvme_dbuf dbuf;
	uint64_t offset;
	unsigned i;
	int fd;

	(void)state;
	view_anew(0, GPUNVME_VIEW_WRITE | GPUNVME_VIEW_FENCED);
	assert_int_equal(user_export(ptr, BYTES, &fd, &offset), HSA_STATUS_SUCCESS);
	assert_int_equal(gpunvme_mem_import_dmabuf(gpu[0], fd, offset, BYTES, &mem), 0);
	user_export_close(fd);
	share(mem, &dbuf);
	assert_int_equal(copy(0, 0, &dbuf), 0);
	for (i = 0; i < BYTES; i++)
		assert_int_equal(((unsigned char *)ptr)[i], pattern(i / 512));
	gpunvme_mem_free(mem);
	user_free(ptr);
	mem = NULL;
	assert_int_equal(gpunvme_mem_import_dmabuf(gpu[0], fd, 0, BYTES, &mem), -EINVAL);
	says("is no DMA-BUF");
	assert_null(mem);
	works(0);
}

/* Threads, queue and buffer of different GPUs. */
static void test_mixed(void **state)
{
	const struct gpunvme_mem_opts opts = { sizeof(opts), GPUNVME_MEM_VRAM, 0 };
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_gpu *cpu;
	struct gpunvme_copy c = GPUNVME_COPY_INIT;
	struct gpunvme_queue *plain;
	struct gpunvme_dq plain_dq;

	(void)state;
	assert_int_equal(gpunvme_mem_alloc(gpu[0], NULL, BYTES, &opts, &mem), 0);
	share(mem, &dbuf);
	assert_int_equal(copy(0, 0, &dbuf), 0);
	assert_int_equal(copy(1, 1, &dbuf), -EXDEV);
	says("the buffer is memory of another GPU");
	says("Allocate it for the GPU of the queue");
	assert_int_equal(copy(1, 0, &dbuf), -EXDEV);
	says("Name the GPU that gpunvme_queue_create() was given");
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &cpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, cpu, NULL, &plain), 0);
	assert_int_equal(gpunvme_queue_view(plain, NULL, &plain_dq), 0);
	c.nblocks = 1;
	assert_int_equal(gpunvme_run_copy(gpu[0], &plain_dq, 1, &dbuf, &c), -EXDEV);
	gpunvme_queue_destroy(plain);
	assert_int_equal(gpunvme_run_copy(gpu[0], &plain_dq, 1, &dbuf, &c), -EXDEV); /* a queue that is gone */
	gpunvme_gpu_close(cpu);
	gpunvme_mem_free(mem);
	works(0);
	works(1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_not_memory), TEST(test_gone_before),	 TEST(test_freed),
		TEST(test_host_memory), TEST(test_cached), TEST(test_gfx12), TEST(test_extended),
		TEST(test_freed_vram), TEST(test_both), TEST(test_import_cached), TEST(test_handles), TEST(test_closed_export), TEST(test_mixed),
		TEST(test_freed_close),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
