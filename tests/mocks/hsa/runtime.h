/* SPDX-License-Identifier: MIT */
/*
 * Inside of the mock of ROCm's HSA runtime. It is a shared library with the real one's functions, compiled against its real
 * headers. Its GPUs have memory that is memfds, which a kernel can map for a controller as it maps a DMA-BUF, or the BAR of a real
 * device (bar.h), and lanes that are threads of this process; lanes.h says what they run.
 *
 * The environment tells it what to play, read at each call:
 *   MOCK_GPUS=N       GPUs (1)                    MOCK_GFX=gfxNNNN     their ISA (gfx1100)
 *   MOCK_WAVE=N       lanes of a wave (by the ISA; narrower than any GPU's with CPU threads)
 *   MOCK_CLOCK=MHZ    of the clock that lanes read (1000; with MOCK_LANES=gfx)
 *   MOCK_CPUS=2       a first CPU, too, that no GPU is linked with
 *   MOCK_HIVE=1       GPUs are linked among each other: their fine-grained memory is not the CPU's, by the runtime's word
 *   MOCK_MINOR=N      version of AMD's extensions (15)
 *   MOCK_LACKS=a,b    "fine": no fine-grained VRAM, extended or not; "bar": the CPU does not reach VRAM; "kernarg", "host", "hostcoarse": no such pool;
 *                        "hdp": no register to flush with; "export": memory has no DMA-BUF; "whole": 16-byte loads of
 *                        completions fall apart (lanes "gfx"); "uncached": pages that a copy of HIP has made cached stay so
 *   MOCK_LANES=gfx    kernels run as the gfx1100 code that they are, on the executor of tests/gfx; else as C on CPU threads. With it
 *                        GFX_SEED, GFX_RULES (docs/verification.md), MOCK_STEPS=N: a kernel is endless after N instructions, and
 *                        MOCK_CODE=FILE: a code object in place of the one that is loaded
 *   MOCK_EXTENDED=0, 1, 2  GPUs have plain fine-grained memory, alone, and before or after extended fine-grained; unset: the latter
 *                        alone, and on gfx12 neither, as GPUs have it without HSA_FORCE_FINE_GRAIN_PCIE and outside of a hive
 *   MOCK_LATE=MS      a list of the GPUs that reach an allocation is as old when it is returned
 *   MOCK_POINTERS=N   type of allocations' pointers (1: HSA)
 *   MOCK_UNITS=N      copies wait while N lanes or more run there
 *   MOCK_ALSO=before, after  in addition to a fault the queue tells of an aperture violation
 *   MOCK_QUEUE_STAYS=1  destroying a queue never returns, as it does after a fault
 *   MOCK_WEDGED=1     destroying a queue that ran something resets its GPU
 *   MOCK_PAUSES=MS    all lanes stand still for up to MS, again and again, as while the kernel moves pages
 *   MOCK_ALIAS=1      lanes find locked memory at other addresses than the CPU
 *   MOCK_INTEROP=1    the runtime imports DMA-BUFs of others, too
 *   MOCK_FAIL=F:N:S   the Nth call of function F, or each with N = 0, returns status S (hexadecimal)
 *   MOCK_BAR=ADDRESS  the memory is that device's BAR 2
 *   MOCK_MIGRATES=W:FROM:UPTO  W: "refused" or "accepted": memory whose DMA-BUF a kernel (seam.h) so answered lies in memory
 *                        of the host from then on, for lanes and CPU, if it has at least FROM and at most UPTO bytes; "whole" alone:
 *                        it is moved before it is mapped, and the controller, too, gets it there
 */
#ifndef TESTS_MOCKS_HSA_RUNTIME_H
#define TESTS_MOCKS_HSA_RUNTIME_H

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && !defined(LITTLEENDIAN_CPU)
#define LITTLEENDIAN_CPU /* hsa.h sees it by itself on x86 only */
#endif
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MOCK_API __attribute__((visibility("default")))
#define MOCK_GPUS_MAX 4u
#define MOCK_VRAM (256ull << 20)

enum {
	POOL_HOST = 0x100,
	POOL_KERNARG,
	POOL_HOST_COARSE,
	POOL_LOCAL,
	POOL_FINE = POOL_LOCAL + MOCK_GPUS_MAX,
	POOL_EXTENDED = POOL_FINE + MOCK_GPUS_MAX,
};
enum { AGENT_CPU_FAR = 0xf, AGENT_CPU, AGENT_GPU };

/* What stands between hsa_init() and the last hsa_shut_down(). A test reads it by dlsym() to see that nothing is left. */
struct mock_counts {
	int runtime, queues, signals, executables, readers, allocations, locks, imports, exports, notifiers;
};
extern MOCK_API struct mock_counts mock_counts;

/* Imports ever, by each GPU. */
extern MOCK_API int mock_importers[MOCK_GPUS_MAX];

/* Memory that was driven out of the GPU (MOCK_MIGRATES), ever. */
struct mock_moves {
	int allocations;
	int neighbours; /* whose block others have a share of: those go with it */
	size_t largest;
};
extern MOCK_API struct mock_moves mock_moves;

/* The register that flushes the CPU's writes to VRAM. */
extern MOCK_API uint32_t mock_hdp;

struct mock_alloc {
	struct mock_alloc *next;
	char *ptr;
	size_t len, asked; /* rounded up, and as it was */
	bool uncached;
	int fd;	      /* of a memfd */
	bool bar;     /* it lies in the BAR, and needs none */
	ino_t dmabuf; /* what was exported of it last, or 0 */
	uint64_t pool;
};

/* pages.c: pages of the host were locked into a pool; which of them are cached by a GPU's L2; that L2, and to flush bytes out of it. */
struct gfx_cache;
void mock_pages_locked(const void *ptr, size_t len, bool coarse);
void mock_pages_see(const void *ptr, size_t len, void (*see)(void *ctx, size_t offset, size_t len, bool cached), void *ctx);
struct gfx_cache *mock_near(unsigned gpu);
MOCK_API void mock_near_flush(const void *ptr, size_t len);

/* Kernels of the program fill all units, so that no kernel begins (atomic). */
extern MOCK_API bool mock_full;

/* A queue of the user's, as HIP's streams have: its packets may have fences of agent scope. */
MOCK_API void mock_user_queue(hsa_queue_t *queue);

unsigned mock_number(const char *variable, unsigned otherwise);
bool mock_lacks(const char *what);
unsigned mock_wave(void); /* lanes of one, by MOCK_WAVE or MOCK_GFX: 64 on gfx9 */

/* Global flags of a pool: one of three kinds (ROCr, MemoryRegion::GetInfo). */
uint32_t mock_pool_flags(uint64_t pool);

/* Does this call fail? Then *status is what it returns. */
bool mock_fails(const char *function, hsa_status_t *status);

/* Is the host's memory at this address locked for that GPU? */
MOCK_API bool mock_sees(unsigned gpu, const void *ptr);

/* So many more lanes run on that GPU, or less. */
void mock_lanes_run(unsigned gpu, int more);

/* The allocation that holds an address, or NULL. */
struct mock_alloc *mock_find(const void *ptr);

/*
 * Memory that GPUs may touch: each thing that was allocated, locked or mapped adds its range, and takes it back. gpus has a bit for
 * each. A range that is there already is counted once more and keeps its GPUs.
 */
struct mock_range {
	struct mock_range *next;
	const char *name;
	const void *ptr;
	const void *lane; /* where GPUs find it: there, or elsewhere (MOCK_ALIAS) */
	size_t len;
	unsigned gpus, owners, times;
};

MOCK_API bool mock_range_add(const char *name, const void *ptr, size_t len, unsigned gpus);
const void *mock_range_alias(const void *ptr); /* lanes find it elsewhere from now on; where they do */
bool mock_is_hosts(const void *ptr); /* neither allocated nor imported: the host's own, locked or not */
bool mock_is_locked(const void *ptr);
bool mock_is_unknown(const void *ptr); /* mapped past the runtime, by libdrm or KFD */
void mock_range_allow(const void *ptr, unsigned gpus);
MOCK_API bool mock_range_remove(const void *ptr); /* false: there is none */
size_t mock_range_len(const void *ptr);		/* 0: there is none */
unsigned mock_taken(void);				/* how many were ever removed */
bool mock_has(unsigned gpu, uint64_t at, uint64_t len);
void mock_ranges(unsigned gpu, void (*see)(void *ctx, const struct mock_range *range), void *ctx);

#define MOCK_FAILS(function)                                                                                                    \
	do {                                                                                                                       \
		hsa_status_t mock_status;                                                                                       \
		if (mock_fails(function, &mock_status))                                                                      \
			return mock_status;                                                                                     \
	} while (0)

#endif
