/* SPDX-License-Identifier: MIT */
/* The software controller and data in memory of the GPU: by the CPU's mapping where its BAR is large, else by staging copies. */
#include <errno.h>
#include <gpunvme/gpunvme.h>

#include "gpu/gpu.h"
#include "hsa/rig.h"
#include "mem/mem.h"
#include "util/bits.h"

#define BYTES (300u * 512)

static char log_text[4096];
static uint32_t *hdp;

static void keep_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	if (level <= GPUNVME_LOG_WARN)
		snprintf(log_text + strlen(log_text), sizeof(log_text) - strlen(log_text), "%s\n", text);
}

static struct world {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *vram, *host;
	struct gpunvme_dbuf dbuf, host_dbuf;
	struct gpunvme_dq dq;
} w;

static void share(struct gpunvme_mem **mem, uint32_t flags, struct gpunvme_dbuf *dbuf)
{
	const struct gpunvme_mem_opts opts = { sizeof(opts), flags, 0 };

	assert_int_equal(gpunvme_mem_alloc(w.gpu, NULL, BYTES, &opts, mem), 0);
	assert_int_equal(gpunvme_mem_map(*mem, w.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(*mem, w.dev, dbuf), 0);
}

/* Rings in memory of the host, one buffer there and one in the GPU's. */
static void begin(void)
{
	const struct gpunvme_gpu_opts gpu_opts = { sizeof(gpu_opts), keep_log, NULL };
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE | GPUNVME_VIEW_FENCED, 0, 0, 0 };

	log_text[0] = '\0';
	opts.log = keep_log;
	hdp = mock_symbol("mock_hdp");
	assert_non_null(hdp);
	assert_int_equal(gpunvme_gpu_open("hsa:0", &gpu_opts, &w.gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, &opts, &w.dev), 0);
	assert_int_equal(gpunvme_queue_create(w.dev, w.gpu, NULL, &w.qp), 0);
	assert_int_equal(gpunvme_queue_view(w.qp, &view, &w.dq), 0);
	share(&w.vram, GPUNVME_MEM_VRAM, &w.dbuf);
	share(&w.host, 0, &w.host_dbuf);
}

static void end(void)
{
	gpunvme_mem_free(w.vram);
	gpunvme_mem_free(w.host);
	gpunvme_queue_destroy(w.qp);
	gpunvme_dev_close(w.dev);
	gpunvme_gpu_close(w.gpu);
	nothing_left();
}

static void copy(uint32_t flags, const struct gpunvme_dbuf *dbuf, uint64_t lba)
{
	struct gpunvme_copy c = GPUNVME_COPY_INIT;

	c.flags = flags;
	c.lba = lba;
	c.nblocks = (uint32_t)gnv_min(dbuf->len, BYTES) / 512;
	c.threads = 32;
	c.step = 11; /* several commands, with and without lists */
	assert_int_equal(gpunvme_run_copy(w.gpu, &w.dq, 1, dbuf, &c), 0);
}

/* Blocks to the GPU's memory, from there to other blocks, and from those to the host's. */
static void round_trip(bool reached)
{
	static unsigned char seen[BYTES];
	unsigned i;

	begin();
	assert_int_equal(gpunvme_mem_ptr(w.vram) != NULL, reached);
	*hdp = 0;
	copy(0, &w.dbuf, FIRST);
	assert_int_equal(*hdp, reached); /* the CPU's stores were flushed */
	assert_int_equal(w.gpu->ops->peek(w.gpu, seen, w.dbuf.base, BYTES), 0);
	for (i = 0; i < BYTES; i++)
		assert_int_equal(seen[i], pattern(FIRST + i / 512));
	for (i = 0; i < BYTES; i++)
		seen[i] = (unsigned char)(i * 7 + i / 512);
	assert_int_equal(w.gpu->ops->poke(w.gpu, w.dbuf.base, seen, BYTES), 0);
	*hdp = 0;
	copy(GPUNVME_COPY_WRITE, &w.dbuf, BLOCKS - BYTES / 512);
	assert_int_equal(*hdp, reached); /* and what the GPU stored is loaded afresh */
	copy(0, &w.host_dbuf, BLOCKS - BYTES / 512);
	assert_memory_equal(gpunvme_mem_ptr(w.host), seen, BYTES);
	assert_string_equal(log_text, "");
	end();
}

static void test_large_bar(void **state)
{
	(void)state;
	round_trip(true);
	pretend("MOCK_LACKS", "hdp"); /* a GPU that needs no flush */
	begin();
	copy(0, &w.dbuf, FIRST);
	end();
}

static void test_no_large_bar(void **state)
{
	(void)state;
	pretend("MOCK_LACKS", "bar");
	round_trip(false);
}

/* What the runtime says of CPUs and memory is not what it means: of several CPUs one is linked, in a hive only ordinary memory. */
static void test_which_cpu(void **state)
{
	hsa_amd_memory_pool_t pool = { POOL_HOST };
	__typeof__(hsa_amd_memory_pool_allocate) *allocate;
	__typeof__(hsa_amd_memory_pool_free) *give_back;
	struct gpunvme_mem *mem = NULL;
	void *ptr;

	(void)state;
	pretend("MOCK_HIVE", "1");
	round_trip(true);
	pretend("MOCK_CPUS", "2");
	round_trip(true);
	begin();
	*(void **)&allocate = mock_symbol("hsa_amd_memory_pool_allocate");
	*(void **)&give_back = mock_symbol("hsa_amd_memory_pool_free");
	assert_int_equal(allocate(pool, 4096, 0, &ptr), 0); /* as hipHostMalloc() does, next to the other CPU */
	assert_int_equal(w.gpu->ops->mem_check(w.gpu, (uintptr_t)ptr, 4096), -ENOENT); /* the host's, not another GPU's */
	assert_int_equal(gpunvme_mem_register(w.gpu, ptr, 4096, &mem), 0);
	assert_false(mem->local);
	gpunvme_mem_free(mem);
	give_back(ptr);
	end();
}

/* What a user got by hipMalloc() has an address of the CPU's by the runtime's word, also where touching that ends the process. */
static void test_registered(void **state)
{
	static const char *const lacks[] = { "", "bar" };
	static unsigned char seen[BYTES];
	struct gnv_gpu_range range;
	struct gnv_gpu_bytes bytes;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;

	(void)state;
	for (unsigned turn = 0; turn < 2; turn++) {
		pretend("MOCK_LACKS", lacks[turn]);
		begin();
		assert_int_equal(w.gpu->ops->local_alloc(w.gpu, BYTES + 4096, &range), 0);
		assert_int_equal(gpunvme_mem_register(w.gpu, (void *)(uintptr_t)(range.lane + 4096), BYTES & ~4095u, &mem), 0);
		assert_int_equal(!gpunvme_mem_ptr(mem), turn);
		assert_non_null(strstr(log_text, "may be cached by this GPU: what a controller writes is seen by kernels that begin after "
						 "hipStreamSynchronize() or gpunvme_gpu_fence()"));
		assert_int_equal(gpunvme_mem_map(mem, w.dev), 0);
		assert_int_equal(gpunvme_mem_dbuf(mem, w.dev, &dbuf), 0);
		copy(0, &dbuf, FIRST);
		assert_int_equal(w.gpu->ops->peek(w.gpu, seen, range.lane + 4096, gpunvme_mem_len(mem)), 0);
		for (size_t i = 0; i < gpunvme_mem_len(mem); i++)
			assert_int_equal(seen[i], pattern(FIRST + (unsigned)i / 512));
		gpunvme_mem_free(mem);
		w.gpu->ops->local_free(w.gpu, &range, BYTES + 4096);
		log_text[0] = '\0';
		assert_int_equal(w.gpu->ops->mem_alloc(w.gpu, 0, 8192, &bytes), 0);
		assert_int_equal(gpunvme_mem_register(w.gpu, (void *)(uintptr_t)bytes.lane, 8192, &mem), 0);
		assert_string_equal(log_text, "");
		gpunvme_mem_free(mem);
		w.gpu->ops->mem_free(w.gpu, &bytes);
		end();
	}
}

/* The runtime refuses a staging copy: that command fails, says why once, and the next one succeeds. */
static void test_failed_copy(void **state)
{
	int answer = -1;

	(void)state;
	pretend("MOCK_LACKS", "bar");
	begin();
	pretend("MOCK_FAIL", "memory_copy:1:1000"); /* the second is the host's, which asks for the result */
	assert_int_equal(gnv_gpu_read(w.gpu, &w.dq, &w.dbuf, FIRST, 9, &answer), 0);
	assert_int_equal(answer & (int)GPUNVME_ST_CODE, GPUNVME_SC_DATA_TRANSFER);
	assert_non_null(strstr(log_text, "does not reach its buffer (said once): GPU 0000:40:00.0: its memory cannot be copied"));
	unsetenv("MOCK_FAIL");
	copy(0, &w.dbuf, FIRST);
	end();
}

#define TEST(name) cmocka_unit_test_teardown(name, clear)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_large_bar), TEST(test_no_large_bar), TEST(test_failed_copy),
					    TEST(test_which_cpu), TEST(test_registered) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
