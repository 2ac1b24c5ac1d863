/* SPDX-License-Identifier: MIT */
/*
 * Inside of the mock of ROCm's HSA runtime. It is a shared library with the real one's functions, compiled against its real
 * headers. Its GPUs have memory that is memfds, which a kernel can map for a controller as it maps a DMA-BUF, or the BAR of a real
 * device (bar.h), and lanes that are threads of this process; lanes.h says what they run.
 *
 * The environment tells it what to play, read at each call:
 *   STANDIN_GPUS=N       GPUs (1)                    STANDIN_GFX=gfxNNNN     their ISA (gfx1100)
 *   STANDIN_WAVE=N       lanes of a wave (by the ISA; narrower than any GPU's with CPU threads)
 *   STANDIN_CLOCK=MHZ    of the clock that lanes read (1000; with STANDIN_LANES=gfx)
 *   STANDIN_CPUS=2       a first CPU, too, that no GPU is linked with
 *   STANDIN_HIVE=1       GPUs are linked among each other: their fine-grained memory is not the CPU's, by the runtime's word
 *   STANDIN_MINOR=N      version of AMD's extensions (15)
 *   STANDIN_LACKS=a,b    "fine": no fine-grained VRAM, extended or not; "bar": the CPU does not reach VRAM; "kernarg", "host", "hostcoarse": no such pool;
 *                        "hdp": no register to flush with; "export": memory has no DMA-BUF; "whole": 16-byte loads of
 *                        completions fall apart (lanes "gfx"); "uncached": pages that a copy of HIP has made cached stay so
 *   STANDIN_LANES=gfx    kernels run as the gfx1100 code that they are, on the executor of tests/gfx; else as C on CPU threads. With it
 *                        GFX_SEED, GFX_RULES (docs/verification.md), STANDIN_STEPS=N: a kernel is endless after N instructions, and
 *                        STANDIN_CODE=FILE: a code object in place of the one that is loaded
 *   STANDIN_EXTENDED=0, 1, 2  GPUs have plain fine-grained memory, alone, and before or after extended fine-grained; unset: the latter
 *                        alone, and on gfx12 neither, as GPUs have it without HSA_FORCE_FINE_GRAIN_PCIE and outside of a hive
 *   STANDIN_LATE=MS      a list of the GPUs that reach an allocation is as old when it is returned
 *   STANDIN_POINTERS=N   type of allocations' pointers (1: HSA)
 *   STANDIN_UNITS=N      copies wait while N lanes or more run there
 *   STANDIN_ALSO=before, after  in addition to a fault the queue tells of an aperture violation
 *   STANDIN_QUEUE_STAYS=1  destroying a queue never returns, as it does after a fault
 *   STANDIN_WEDGED=1     destroying a queue that ran something resets its GPU
 *   STANDIN_PAUSES=MS    all lanes stand still for up to MS, again and again, as while the kernel moves pages
 *   STANDIN_ALIAS=1      lanes find locked memory at other addresses than the CPU
 *   STANDIN_INTEROP=1    the runtime imports DMA-BUFs of others, too
 *   STANDIN_FAIL=F:N:S   the Nth call of function F, or each with N = 0, returns status S (hexadecimal)
 *   STANDIN_BAR=ADDRESS  the memory is that device's BAR 2
 *   STANDIN_MIGRATES=W:FROM:UPTO  W: "refused" or "accepted": memory whose DMA-BUF a kernel (seam.h) so answered lies in memory
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

#define STANDIN_API __attribute__((visibility("default")))
#define STANDIN_GPUS_MAX 4u
#define STANDIN_VRAM (256ull << 20)

enum {
	POOL_HOST = 0x100,
	POOL_KERNARG,
	POOL_HOST_COARSE,
	POOL_LOCAL,
	POOL_FINE = POOL_LOCAL + STANDIN_GPUS_MAX,
	POOL_EXTENDED = POOL_FINE + STANDIN_GPUS_MAX,
};
enum { AGENT_CPU_FAR = 0xf, AGENT_CPU, AGENT_GPU };

/* What stands between hsa_init() and the last hsa_shut_down(). A test reads it by dlsym() to see that nothing is left. */
struct standin_counts {
	int runtime, queues, signals, executables, readers, allocations, locks, imports, exports, notifiers;
};
extern STANDIN_API struct standin_counts standin_counts;

/* Imports ever, by each GPU. */
extern STANDIN_API int standin_importers[STANDIN_GPUS_MAX];

/* Memory that was driven out of the GPU (STANDIN_MIGRATES), ever. */
struct standin_moves {
	int allocations;
	int neighbours; /* whose block others have a share of: those go with it */
	size_t largest;
};
extern STANDIN_API struct standin_moves standin_moves;

/* The register that flushes the CPU's writes to VRAM. */
extern STANDIN_API uint32_t standin_hdp;

struct standin_alloc {
	struct standin_alloc *next;
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
void standin_pages_locked(const void *ptr, size_t len, bool coarse);
void standin_pages_see(const void *ptr, size_t len, void (*see)(void *ctx, size_t offset, size_t len, bool cached), void *ctx);
struct gfx_cache *standin_near(unsigned gpu);
STANDIN_API void standin_near_flush(const void *ptr, size_t len);

/* Kernels of the program fill all units, so that no kernel begins (atomic). */
extern STANDIN_API bool standin_full;

/* A queue of the user's, as HIP's streams have: its packets may have fences of agent scope. */
STANDIN_API void standin_user_queue(hsa_queue_t *queue);

unsigned standin_number(const char *variable, unsigned otherwise);
bool standin_lacks(const char *what);
unsigned standin_wave(void); /* lanes of one, by STANDIN_WAVE or STANDIN_GFX: 64 on gfx9 */

/* Global flags of a pool: one of three kinds (ROCr, MemoryRegion::GetInfo). */
uint32_t standin_pool_flags(uint64_t pool);

/* Does this call fail? Then *status is what it returns. */
bool standin_fails(const char *function, hsa_status_t *status);

/* Is the host's memory at this address locked for that GPU? */
STANDIN_API bool standin_sees(unsigned gpu, const void *ptr);

/* So many more lanes run on that GPU, or less. */
void standin_lanes_run(unsigned gpu, int more);

/* The allocation that holds an address, or NULL. */
struct standin_alloc *standin_find(const void *ptr);

/*
 * Memory that GPUs may touch: each thing that was allocated, locked or mapped adds its range, and takes it back. gpus has a bit for
 * each. A range that is there already is counted once more and keeps its GPUs.
 */
struct standin_range {
	struct standin_range *next;
	const char *name;
	const void *ptr;
	const void *lane; /* where GPUs find it: there, or elsewhere (STANDIN_ALIAS) */
	size_t len;
	unsigned gpus, owners, times;
};

STANDIN_API bool standin_range_add(const char *name, const void *ptr, size_t len, unsigned gpus);
const void *standin_range_alias(const void *ptr); /* lanes find it elsewhere from now on; where they do */
bool standin_is_hosts(const void *ptr); /* neither allocated nor imported: the host's own, locked or not */
bool standin_is_locked(const void *ptr);
bool standin_is_unknown(const void *ptr); /* mapped past the runtime, by libdrm or KFD */
void standin_range_allow(const void *ptr, unsigned gpus);
STANDIN_API bool standin_range_remove(const void *ptr); /* false: there is none */
size_t standin_range_len(const void *ptr);		/* 0: there is none */
unsigned standin_taken(void);				/* how many were ever removed */
bool standin_has(unsigned gpu, uint64_t at, uint64_t len);
void standin_ranges(unsigned gpu, void (*see)(void *ctx, const struct standin_range *range), void *ctx);

#define STANDIN_FAILS(function)                                                                                                    \
	do {                                                                                                                       \
		hsa_status_t standin_status;                                                                                       \
		if (standin_fails(function, &standin_status))                                                                      \
			return standin_status;                                                                                     \
	} while (0)

#endif
