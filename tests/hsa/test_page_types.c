/* SPDX-License-Identifier: MIT */
/*
 * Memory that a GPU's L2 caches, with kernels of a user's (page_types.hip, compiled by check_code.py, in PAGES_CODE) whose launches
 * have fences of agent scope, as HIP's, and with copies that pin as HIP's do. On the threads of the executor, gfx1100.
 */
#include <errno.h>
#include <fcntl.h>
#include <gpunvme/gpunvme.h>
#include <sys/mman.h>

#include "gpu/gpu.h"
#include "hsa/rig.h"
#include "os/amd/hsa_table.h"

#define BYTES 4096u
#define NBLOCKS (BYTES / 512)
#define WORDS (BYTES / 4)
#define ROUNDS 12u /* how long the caches keep what they have is drawn for each launch */

struct work {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf buf;
	uint64_t lba;
	uint32_t nblocks, value;
	uint64_t at;
	uint32_t words;
	int status;
	uint64_t out;
};

static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *qp;
static struct gnv_hsa *lanes; /* the user's */
static uint32_t *out;
static void *elf;
static struct work work;
static hsa_status_t (*user_alloc)(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags, void **ptr);
static hsa_status_t (*user_free)(void *ptr);

static void load(void)
{
	FILE *file = fopen(getenv("PAGES_CODE"), "r");
	long len;

	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	len = ftell(file);
	rewind(file);
	elf = malloc((size_t)len);
	assert_int_equal(fread(elf, 1, (size_t)len, file), len);
	fclose(file);
	assert_int_equal(gnv_hsa_load(lanes, elf, (size_t)len), 0);
}

static int begin(void **state)
{
	void (*user_queue)(hsa_queue_t *queue);
	void *ptr;
	struct gnv_hsa_locked *locked;
	uint64_t lane;

	if (setup(state))
		return -1;
	*(void **)&user_alloc = mock_symbol("hsa_amd_memory_pool_allocate");
	*(void **)&user_free = mock_symbol("hsa_amd_memory_pool_free");
	*(void **)&user_queue = mock_symbol("mock_user_queue");
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gnv_hsa_open("0", &lanes), 0);
	assert_int_equal(gnv_hsa_host_alloc(lanes, BYTES, &ptr), 0);
	assert_int_equal(gnv_hsa_lock(lanes, ptr, BYTES, &lane, &locked), 0);
	out = ptr;
	user_queue(lanes->queue);
	load();
	return 0;
}

static int end(void **state)
{
	gnv_hsa_host_free(lanes, out);
	gnv_hsa_close(lanes);
	free(elf);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return clear(state) || teardown(state);
}

/* As a launch of HIP's: nothing before or after it reaches beyond the GPU. */
static void run(const char *kernel)
{
	const uint16_t fences = HSA_FENCE_SCOPE_AGENT << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
				HSA_FENCE_SCOPE_AGENT << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
	hsa_kernel_dispatch_packet_t p = { .header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE | fences, .setup = 1,
					   .workgroup_size_x = 1, .workgroup_size_y = 1, .workgroup_size_z = 1,
					   .grid_size_x = 1, .grid_size_y = 1, .grid_size_z = 1,
					   .kernarg_address = lanes->args, .completion_signal = lanes->done };
	const struct gnv_hsa_api *api = &lanes->api;
	hsa_executable_symbol_t symbol;
	uint64_t at;

	assert_int_equal(api->executable_get_symbol_by_name(lanes->executable, kernel, &lanes->agent, &symbol), 0);
	api->executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &p.kernel_object);
	api->executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &p.group_segment_size);
	api->executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &p.private_segment_size);
	memset(lanes->args, 0, GNV_HSA_ARGS_MAX);
	work.out = (uintptr_t)out;
	memcpy(lanes->args, &work, sizeof(work));
	memset(out, 0xee, BYTES);
	api->signal_store_screlease(lanes->done, 1);
	at = api->queue_add_write_index_screlease(lanes->queue, 1);
	memcpy((hsa_kernel_dispatch_packet_t *)lanes->queue->base_address + at % lanes->queue->size, &p, sizeof(p));
	api->signal_store_screlease(lanes->queue->doorbell_signal, (hsa_signal_value_t)at);
	while (api->signal_wait_scacquire(lanes->done, HSA_SIGNAL_CONDITION_LT, 1, 10000000, HSA_WAIT_STATE_BLOCKED))
		assert_int_equal(__atomic_load_n(&lanes->broken, __ATOMIC_ACQUIRE), 0);
	assert_int_equal(out[0], 0);
}

/* A copy of HIP's, from or to pageable memory: are the pages pinned for it, or staged? */
static bool hip_copies(void *ptr, size_t len)
{
	hsa_status_t (*lock)(void *, size_t, hsa_agent_t *, int, hsa_amd_memory_pool_t, uint32_t, void **);
	hsa_status_t (*unlock)(void *);
	void *lane;

	*(void **)&lock = mock_symbol("hsa_amd_memory_lock_to_pool");
	*(void **)&unlock = mock_symbol("hsa_amd_memory_unlock");
	if (lock(ptr, len, NULL, 0, (hsa_amd_memory_pool_t){ POOL_HOST_COARSE }, 0, &lane) != HSA_STATUS_SUCCESS)
		return false;
	assert_int_equal(unlock(ptr), HSA_STATUS_SUCCESS);
	return true;
}

static uint32_t word_of(unsigned lba)
{
	return pattern(lba) * 0x01010101u;
}

/* Views and descriptor of memory that is the work of the next kernels. */
static void use(struct gpunvme_mem *mem, uint32_t flags)
{
	const struct gpunvme_view view = { sizeof(view), flags, 0, 0, 0 };

	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &work.buf), 0);
	assert_int_equal(gpunvme_queue_view(qp, &view, &work.dq), 0);
	work.nblocks = NBLOCKS;
	work.at = work.buf.base;
	work.words = WORDS;
}

static void reads(unsigned lba)
{
	work.lba = lba;
	run("pages_read.kd");
	assert_int_equal(out[1], word_of(lba));
	assert_int_equal(out[2], word_of(lba + NBLOCKS - 1));
}

static void stores(uint32_t value)
{
	work.value = value;
	run("pages_store.kd");
}

/* After the blocks that are read. */
static void writes(uint32_t value)
{
	uint32_t word[WORDS], i;
	int fd;

	work.lba = BLOCKS - NBLOCKS;
	run("pages_write.kd");
	fd = open(image_path("i"), O_RDONLY);
	assert_int_equal(pread(fd, word, sizeof(word), (BLOCKS - NBLOCKS) * 512), sizeof(word));
	close(fd);
	for (i = 0; i < WORDS; i++)
		if (word[i] != value)
			fail_msg("word %u on the medium is 0x%x, not 0x%x", i, word[i], value);
}

static void fence(void)
{
	assert_int_equal(gpunvme_gpu_fence(gpu), 0);
}

/* Everything that a program does with memory of the host, which HIP copies in between. */
static void mixed(struct gpunvme_mem *mem, bool pinned)
{
	void *ptr = gpunvme_mem_ptr(mem);
	unsigned i;

	use(mem, GPUNVME_VIEW_WRITE);
	for (i = 0; i < ROUNDS; i++) {
		reads(i * 3);
		assert_int_equal(hip_copies(ptr, BYTES), pinned);
		if (pinned)
			fence();
		reads(i * 3 + 1);
		stores(0x1000 + i);
		writes(0x1000 + i);
		if (!pinned)
			continue;
		assert_true(hip_copies(ptr, BYTES));
		stores(0x2000 + i); /* while it is cached */
		fence();
		writes(0x2000 + i);
		assert_true(hip_copies(ptr, BYTES));
		assert_int_equal(gpunvme_mem_dbuf(mem, dev, &work.buf), 0); /* as good, where no kernel has used it since */
		reads(i * 3 + 2);
	}
}

/* Buffers of the library's: HIP pins none of their pages, and nobody has to fence. */
static void test_own(void **state)
{
	struct gpunvme_mem *mem;

	(void)state;
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, BYTES, NULL, &mem), 0);
	mixed(mem, false);
	assert_int_equal(gpunvme_mem_free(mem), 0);
}

static const struct gpunvme_mem_opts kinds[] = { { sizeof(kinds[0]), GPUNVME_MEM_SHARED, 0 },
						 { sizeof(kinds[0]), GPUNVME_MEM_HUGE, 0 } };

/* Others: after a copy they are cached until the fence. */
static void test_others(void **state)
{
	struct gpunvme_mem *mem;
	void *ptr = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		assert_int_equal(gpunvme_mem_alloc(gpu, NULL, BYTES, &kinds[i], &mem), 0);
		mixed(mem, true);
		assert_int_equal(gpunvme_mem_free(mem), 0);
	}
	assert_int_equal(gpunvme_mem_register(gpu, ptr, BYTES, &mem), 0);
	mixed(mem, true);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	munmap(ptr, BYTES);
}

/* What the cache of mappings has kept is made uncached again each time that it is lent. */
static void test_kept(void **state)
{
	struct gpunvme_mem_use in_use;
	void *ptr = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_queue_view(qp, NULL, &work.dq), 0);
	work.nblocks = NBLOCKS;
	work.words = WORDS;
	for (i = 0; i < ROUNDS; i++) {
		assert_int_equal(gpunvme_mem_get(gpu, dev, ptr, BYTES, GPUNVME_GET_KEEP, &in_use), 0);
		work.buf = in_use.dbuf;
		work.at = work.buf.base + in_use.offset;
		assert_int_equal(in_use.offset, 0);
		reads(2 * i);
		reads(2 * i + 1);
		assert_int_equal(gpunvme_mem_put(&in_use), 0);
		assert_true(hip_copies(ptr, BYTES));
	}
	assert_int_equal(gpunvme_mem_cache_forget(dev, ptr, BYTES), 0);
	munmap(ptr, BYTES);
}

static void *hip_malloc(void)
{
	void *ptr = NULL;

	assert_int_equal(user_alloc((hsa_amd_memory_pool_t){ POOL_LOCAL }, BYTES, 0, &ptr), HSA_STATUS_SUCCESS);
	return ptr;
}

/* The mock GPU is as nasty as it has to be: without a fence a kernel sees again what it saw. */
static void test_keeps(void **state)
{
	uint32_t *word = hip_malloc(), old = 0, i;

	(void)state;
	work.at = (uintptr_t)word;
	work.words = WORDS;
	for (i = 0; i < 4 * ROUNDS; i++) {
		run("pages_look.kd");
		word[0] = i;
		run("pages_look.kd");
		old += out[1] != i;
		fence();
		run("pages_look.kd");
		assert_int_equal(out[1], i);
		stores(7 * i);
		fence();
		assert_int_equal(word[WORDS - 1], 7 * i);
	}
	assert_true(old);
	assert_int_equal(user_free(word), HSA_STATUS_SUCCESS);
}

/* Reading into memory of hipMalloc(), and writing from there. */
static void test_cached(void **state)
{
	void *ptr = hip_malloc();
	struct gpunvme_mem *mem;
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_mem_register(gpu, ptr, BYTES, &mem), 0);
	use(mem, GPUNVME_VIEW_WRITE | GPUNVME_VIEW_FENCED);
	for (i = 0; i < ROUNDS; i++) {
		run("pages_look.kd"); /* has the lines */
		fence();
		reads(2 * i);
		fence();
		reads(2 * i + 1);
		stores(0x3000 + i);
		fence();
		writes(0x3000 + i);
	}
	assert_int_equal(gpunvme_mem_free(mem), 0);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
}

/* A view that writes and a descriptor of cached memory do not go together, whichever is first; with GPUs that write back they do. */
static void test_refused(void **state)
{
	const struct gpunvme_view plain = { sizeof(plain), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	const struct gpunvme_view fenced = { sizeof(fenced), GPUNVME_VIEW_WRITE | GPUNVME_VIEW_FENCED, 0, 0, 0 };
	struct gnv_hsa *hsa = *(struct gnv_hsa **)gpu->priv;
	void *ptr = hip_malloc();
	struct gpunvme_mem *mem;
	struct gpunvme_queue *other;
	struct gpunvme_dbuf buf;
	struct gpunvme_dq dq;

	(void)state;
	gpunvme_queue_destroy(qp); /* which has had plain views */
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &other), 0);
	assert_int_equal(gpunvme_mem_register(gpu, ptr, BYTES, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_queue_view(other, &plain, &dq), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &buf), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_VIEW_FENCED"));
	gpunvme_queue_destroy(other);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &buf), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_queue_view(qp, &plain, &dq), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_gpu_fence()"));
	assert_int_equal(gpunvme_queue_view(qp, &fenced, &dq), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	assert_int_equal(gpunvme_queue_view(qp, &plain, &dq), 0);
	gpunvme_queue_destroy(qp);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	snprintf(hsa->info.isa, sizeof(hsa->info.isa), "amdgcn-amd-amdhsa--gfx90a");
	assert_int_equal(gpunvme_mem_register(gpu, ptr, BYTES, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &buf), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	snprintf(hsa->info.isa, sizeof(hsa->info.isa), "amdgcn-amd-amdhsa--gfx1100");
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
}

/* hipHostMalloc() that is not coherent. */
static void test_host_malloc(void **state)
{
	struct gnv_hsa *hsa = *(struct gnv_hsa **)gpu->priv;
	struct gpunvme_mem *mem;
	void *ptr = NULL;

	(void)state;
	assert_int_equal(user_alloc((hsa_amd_memory_pool_t){ POOL_HOST_COARSE }, BYTES, 0, &ptr), HSA_STATUS_SUCCESS);
	assert_int_equal(gpunvme_mem_register(gpu, ptr, BYTES, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "hipHostMallocCoherent"));
	assert_int_equal(gpunvme_mem_free(mem), 0);
	snprintf(hsa->info.isa, sizeof(hsa->info.isa), "amdgcn-amd-amdhsa--gfx942");
	assert_int_equal(gpunvme_mem_register(gpu, ptr, BYTES, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	snprintf(hsa->info.isa, sizeof(hsa->info.isa), "amdgcn-amd-amdhsa--gfx1100");
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keeps),  cmocka_unit_test(test_own),     cmocka_unit_test(test_others),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_cached), cmocka_unit_test(test_host_malloc), cmocka_unit_test(test_kept),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
