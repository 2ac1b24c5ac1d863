/* SPDX-License-Identifier: MIT */
/*
 * An executor for AMD GPUs' code objects (gfx1100, gfx942, gfx1200) on a machine model that is nastier than any GPU. See
 * docs/verification.md.
 *
 *   load.c    ELF, kernel descriptors, metadata       scalar.c  SALU, SMEM, branches, waits
 *   decode.c  machine words to struct gfx_inst,       vector.c  VALU, with valu.c
 *             with decode9.c and decode12.c
 *   text.c    struct gfx_inst to assembler text       memory.c  memory instructions, with access.c (their life) and cache.c
 *   run.c     waves, barriers, scheduler              threads.c  the same in several host threads
 *   launch.c  from a packet to waves
 * The adversary's rules are listed at enum gfx_rule.
 */
#ifndef TESTS_GFX_GFX_H
#define TESTS_GFX_GFX_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GFX_LANES 64 /* of a wave, at most */
#define GFX_LINE 64
#define GFX_PENDING 64
#define GFX_REGIONS 512
#define GFX_ARGS 16
#define GFX_L2 4

enum gfx_format {
	F_NONE, F_SOP1, F_SOP2, F_SOPC, F_SOPK, F_SOPP, F_SMEM, F_VOP1, F_VOP2, F_VOPC, F_VOP3, F_VOP3P, F_VOPD, F_DS, F_FLAT, F_MUBUF, F_COUNT
};

enum gfx_op_id {
	OP_none,
	OP_v_cmp,
#define OP(format, code, name, spec) OP_##name,
#include "ops.def"
#undef OP
#define SAME(format, code, name, spec, as)
#define NEW(format, code, name, spec) OP_##name,
#define GONE(format, code)
#include "ops9.def"
#include "ops12.def"
#undef SAME
#undef NEW
#undef GONE
	OP_count
};

enum gfx_isa { ISA_11, ISA_9, ISA_12, ISA_COUNT };

/* An opcode of some instruction set. What it does is said in gfx11's words: id and name, and code for SOPC, SOPK and FLAT. */
struct gfx_op {
	uint8_t format;
	uint16_t code, id;
	const char *name, *spec, *text; /* text: its name in that set */
	bool real, saves;		/* by the name: _f32, _saveexec_ */
};

enum gfx_part { P_ALL, P_LOW, P_HIGH };

/* One operand: role letter of ops.def, dwords or which half of one, and the number as source fields encode it (256 and up: vector). */
struct gfx_arg {
	char role;
	uint8_t width, part;
	uint16_t code;
};

struct gfx_half {
	const struct gfx_op *op;
	uint8_t count;
	struct gfx_arg arg[6];
};

struct gfx_inst {
	uint64_t addr; /* in the code object */
	uint32_t word[3], literal;
	uint8_t len, format, segment, isa; /* len 0: unknown */
	uint8_t scope, hint;		   /* gfx12: the fields SCOPE and TH */
	bool e64, dpp, sdwa, glc, slc, dlc, clamp, has_saddr, off; /* off: scratch without a vector address */
	bool acc; /* gfx942: the data of a load or store is in accumulation registers */
	uint8_t neg, abs, omod, opsel, opsel_hi;
	uint8_t sel[3], sext, unused; /* SDWA: parts of both sources and of the destination, and what becomes of its rest */
	uint8_t vopc; /* VOPC: the comparison */
	int32_t imm;  /* SIMM16, or the offset */
	struct gfx_half x, y; /* y: second half of VOPD */
};

/* ---- The code object ---- */

/* A family of GPUs: what the memory model of LLVM's AMDGPUUsage says of it. */
struct gfx_family {
	const char *name;
	uint32_t machine; /* as in the ELF header's flags */
	enum gfx_isa isa;
	bool one_counter; /* vmcnt counts stores, too */
	unsigned l2s; /* at most so many L2; they keep stores until a write-back and loads until an invalidate */
	bool near; /* one L2, which no instruction empties: struct gfx, near */
};

struct gfx_place {
	uint32_t offset, size;
};

struct gfx_kernel {
	const char *name;
	uint64_t entry;
	uint32_t lds, scratch, kernarg, user_sgprs, rsrc2, properties;
	uint32_t explicit_size, hidden; /* metadata: bytes of explicit arguments, offset of the first hidden one (0: none) */
	struct gfx_place arg[GFX_ARGS]; /* metadata: the first explicit arguments, of which there are `args` */
	unsigned args;
};

struct gfx_code {
	const struct gfx_family *family;
	uint8_t *image; /* as loaded; code address a is image + a */
	uint64_t size, text, text_size;
	struct gfx_inst *inst; /* one for each dword of text; decoded on first use */
	struct gfx_kernel *kernels;
	unsigned count, lanes; /* kernels; lanes of a wave, 32 or 64 */
};

struct gfx_code *gfx_load(const char *path, char *why, size_t why_size);
/* The same of a file that is in memory. It is copied. */
struct gfx_code *gfx_load_memory(const void *elf, size_t size, char *why, size_t why_size);
void gfx_unload(struct gfx_code *code);
const struct gfx_kernel *gfx_find(const struct gfx_code *code, const char *name);
int gfx_metadata(struct gfx_code *code, const uint8_t *note, size_t size);

/* Decode what stands `at` bytes after the begin of the text. in->len stays 0 when it is no known instruction. */
void gfx_decode(const struct gfx_code *code, uint64_t at, struct gfx_inst *in);
/* The operand that two letters of ops.def describe, in a wave of so many lanes. */
struct gfx_arg gfx_operand(const char *spec, unsigned code, unsigned lanes);
void gfx_text(const struct gfx_inst *in, char *out, size_t size);
const struct gfx_op *gfx_op_table(enum gfx_isa isa, unsigned *count);

/* ---- The machine ---- */

/*
 * What the machine may do that a simple one would not. Each rule can be switched off. "ISA" is the RDNA3 instruction set reference,
 * "usage" LLVM's AMDGPUUsage with its memory model for gfx10 and gfx11; the statements are given in our words.
 *
 * POISON    A load's destination is undefined until a wait covers it. ISA 5.6: nothing but the counters tells that data arrived.
 * LATE      Loads and atomics touch memory at any moment between issue and wait, those of different words in any order.
 *           Usage: a wave's vector memory operations complete in any order as other parties see it, but for those of one word.
 * STORES    Stores become visible in any order until S_WAITCNT_VSCNT covers them. Usage: a release waits for vscnt(0) first.
 * CACHES    L0 (of a wave), L1 (of all) and the scalar cache keep a line without limit. Usage: buffer_gl0_inv and buffer_gl1_inv
 *           drop the first two, GLC bypasses them, and nothing keeps the scalar cache coherent within a kernel.
 *           And they fetch ahead: a line that was cached once may come back at any moment.
 * RINGBITS  What a device writes is read fresh only with all bits its region demands (glc slc dlc for rings). Usage names no bit
 *           that bypasses the caches after L1, the page's type does; so the model wants all there are, and no invalidate helps.
 * TEAR      Accesses of 16 bytes to device memory fall apart into dwords, in any order. Usage: no access above 8 bytes is atomic.
 * SCHEDULE  Waves run in bursts, starve and change order. Usage guarantees no order of progress among waves.
 * CLOCK     The real-time clock jumps ahead. It counts at a rate of its own (usage: s_sendmsg_rtn and s_memrealtime), and nothing says how
 *           long an instruction takes.
 * CACHES    on gfx942: L1 (of a wave, as in tgsplit mode) and the scalar cache as above; sc0 or sc1 bypasses L1, buffer_inv drops it.
 *           There are one or several L2, as the seed wills, for usage lets an agent be configured so. They keep what was stored without
 *           sc1 until buffer_wbl2: with sc1, which does nothing where there is one L2, for other waves, with sc0 and sc1 for other devices. And what was read until buffer_inv: with sc1 where there are several,
 *           with sc0 and sc1 always. A load with sc1 passes by where there are several, one with sc0 and sc1 always; so do atomics.
 * CACHES    on gfx12: L0 (of a wave, as in WGP mode) serves loads of SCOPE_CU, the one L2 those up to SCOPE_DEV and keeps what was
 *           stored so until global_wb scope:SCOPE_SYS; global_inv drops what is below its scope. Usage, Memory Model GFX12: reads may hit,
 *           and writes stay, in a cache whose scope is at least theirs; invalidates are for the caches below their own.
 * CACHES    on gfx11: after L1 there is an L2 which keeps lines of pages of MTYPE NC, read or written, always, or as long as the seed
 *           wills; no instruction writes it back or drops it. The packet processor does, by fences of system scope (usage, Memory Model
 *           GFX10-GFX11: a release waits, and no more, since L2 is what all of an agent share; MTYPE UC passes by).
 * WAITS     Not a liberty but a check, which needs no luck: a release (GFX_RELEASED) is stored, or anything after a doorbell
 *           (GFX_BELL), before the counter of what comes before was waited for; or a release without the write-back that the family
 *           needs. Usage: the sequences of store atomic release at agent and system scope.
 */
enum gfx_rule {
	GFX_POISON = 1, GFX_LATE = 2, GFX_STORES = 4, GFX_CACHES = 8, GFX_RINGBITS = 16, GFX_TEAR = 32, GFX_SCHEDULE = 64,
	GFX_CLOCK = 128, GFX_WAITS = 256, GFX_NASTY = 511
};

enum gfx_bits {
	GFX_GLC = 1, GFX_SLC = 2, GFX_DLC = 4, GFX_UNCACHED = 8, GFX_READONLY = 16, GFX_DEVICE = 32, GFX_WHOLE = 64, GFX_BELL = 128,
	GFX_RELEASED = 256, GFX_STACK = 512, GFX_NC = 1024, GFX_LOCAL = 2048
};

struct gfx_region {
	const char *name;
	uint64_t base, size;
	/*
	 * Bits a fresh read needs. GFX_UNCACHED: none; GFX_DEVICE: another party writes it; GFX_WHOLE: aligned 16 bytes are never
	 * torn; GFX_BELL: a register of a device; GFX_RELEASED: a store to it signals, to a device if it is a register, else other
	 * waves, that all before it has been done; GFX_STACK: nobody else looks there; GFX_LOCAL: local memory; GFX_NC: on gfx11 its pages are cached by L2,
	 * whichever party writes them, as are those with none of the flags that say that another party does.
	 */
	uint32_t flags;
};

enum gfx_counter { C_VM, C_VS, C_LGKM, C_KM }; /* gfx12: loadcnt, storecnt, dscnt, kmcnt */
enum gfx_kind { K_LOAD, K_STORE, K_ATOMIC, K_SCALAR, K_READY, K_BACK };

/* An access that was issued and not yet waited for. Lane l is complete when todo[l] is 0; one bit for each piece. */
struct gfx_access {
	const struct gfx_inst *in;
	uint8_t kind, size, piece, pieces;
	bool vm, vs, lgkm, km; /* counters that have not been waited for */
	uint64_t lanes, left; /* left: lanes with pieces to do */
	uint64_t low, high;
	uint8_t todo[GFX_LANES];
	uint64_t addr[GFX_LANES];
	uint32_t data[GFX_LANES][4], got[GFX_LANES][4];
	uint32_t scalar[16];
	uint16_t reg; /* first destination register; 0xffff: none */
	uint8_t regs, part;
	uint32_t flags; /* of all regions it touches */
};

/* What went wrong: the launch made no sense or a rule was broken; and what a GPU's driver reports too. */
enum gfx_cause { GFX_REFUSED, GFX_FAULT, GFX_ILLEGAL, GFX_ENDLESS };

enum gfx_state { W_RUN, W_BARRIER, W_DONE };

struct gfx_wave { /* what every turn looks at comes first */
	enum gfx_state state;
	bool scc, yield;
	uint8_t indexed; /* gfx942: bits of s_set_gpr_idx_on */
	unsigned first, count; /* ring of `pend` */
	uint64_t asleep; /* starved until that step */
	uint64_t pc;
	struct gfx_cache *l0; /* its own: the waves of a workgroup may run on two compute units */
	unsigned group, number;
	unsigned signals; /* barriers at which it has arrived */
	uint32_t s[128]; /* 106 VCC, 124 null, 125 M0, 126 EXEC; masks of 64 lanes take the next one, too */
	uint32_t v[256][GFX_LANES];
	uint32_t acc[256][GFX_LANES]; /* gfx942's other registers, where compilers keep what has no room */
	uint64_t vpoison[256]; /* lanes */
	uint8_t spoison[128];
	struct gfx_access pend[GFX_PENDING];
	/* The last store that other devices, or waves, cannot see yet because it was not written back; or NULL. */
	const struct gfx_inst *kept, *kept_near;
	uint64_t trace[16], executed;
};

struct gfx_cache;

struct gfx_group {
	uint8_t *lds;
	uint32_t lds_size;
	struct gfx_cache *scalar;
};

struct gfx_note {
	uint64_t addr, value, step;
	uint16_t wave;
	char kind;
};

struct gfx {
	struct gfx_code *code;
	const struct gfx_kernel *kernel;
	uint32_t rules;
	/* Per cent: hits that a cache forgets, steps on which something pending happens, waits that last; lines fetched ahead. */
	uint32_t forget, stir, stall, ahead;
	uint32_t season; /* how many L2 there are */
	uint64_t random, step, clock, tick, max_steps; /* tick: how much the clock moves with each instruction; 0: 1 */
	struct gfx_region region[GFX_REGIONS];
	uint8_t *stack; /* private memory: one slice for each lane */
	uint32_t slice;
	unsigned regions, groups, waves, wave_of_group, lanes; /* lanes: of a wave */
	struct gfx_group *group;
	struct gfx_wave *wave;
	struct gfx_cache *l2[GFX_L2]; /* where the family has them; else L1 stands in their place */
	unsigned l2s;
	bool several; /* L2, even if here is but one */
	struct gfx_cache *l1, *far; /* far: after L1, before memory that demands bits; nothing invalidates it */
	/* Of gfx11: the L2, of this launch or, if it was set before, of all launches of a GPU; and which packets leave it alone. */
	struct gfx_cache *near;
	bool near_own, near_before, near_after;
	uint64_t cached[64]; /* lines that plain loads have touched */
	unsigned cached_count;
	unsigned threads; /* of the host, for the workgroups; 0 and 1: all in this one, which a seed replays exactly */
	int *halt;        /* set by a thread that failed, or to end the launch */
	void (*outside)(void *ctx); /* the rest of the world: gets a turn now and then */
	void (*missed)(void *ctx); /* or NULL: no region holds an access. Those that there are by now may be registered */
	void *outside_ctx;
	jmp_buf stop;
	char error[512];
	enum gfx_cause cause; /* of the error */
	uint64_t fault;	      /* GFX_FAULT: the address, or 0 */
	struct gfx_wave *current;
	struct gfx_note note[32]; /* last accesses */
	unsigned noted;
};

/* Kernels may touch that memory. Where several overlap the last counts. */
void gfx_register(struct gfx *m, const char *name, const void *base, uint64_t size, uint32_t flags);
/* Does one registered memory hold all of this? */
bool gfx_knows(const struct gfx *m, uint64_t addr, uint64_t size);
/* Draws how caches and stores behave in this run. */
void gfx_season(struct gfx *m);

/* A kernel's dispatch packet (64 bytes) and arguments (kernel->kernarg bytes), both as the kernel will see them, and what is in it. */
struct gfx_dispatch {
	const struct gfx_kernel *kernel;
	uint32_t grid[3], width[3]; /* lanes of the launch and of a group, of which the last ones may be smaller */
	uint32_t lds, stack;	    /* bytes of a group's local memory; of a lane's stack */
	const void *kernarg, *packet;
};

/* 0, or -1 with m->error and m->cause set. */
int gfx_dispatch(struct gfx *m, const struct gfx_dispatch *d);
/* The same without a packet. The grid has `lanes` x 1 x 1 lanes in groups of `width`, of which the last may be smaller. */
int gfx_launch(struct gfx *m, const char *kernel, uint32_t lanes, uint32_t width, const void *args, uint32_t bytes);
/* Trace of the last accesses and of the current wave's last instructions. */
void gfx_trace(const struct gfx *m);
_Noreturn void gfx_fail_as(struct gfx *m, enum gfx_cause cause, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define gfx_fail(m, ...) gfx_fail_as(m, GFX_REFUSED, __VA_ARGS__)

#define GFX_PRIVATE 0x20000000000000ull /* where generic pointers find the stack: the aperture, whose upper half is this */
#define GFX_SHARED 0x10000000000000ull	/* and local memory */

#define GFX_VCC 106
#define GFX_M0 125
#define GFX_EXEC 126

/* VCC or EXEC, of the lanes there are. */
static inline uint64_t gfx_mask(const struct gfx *m, const struct gfx_wave *w, unsigned reg)
{
	return w->s[reg] | (m->lanes > 32 ? (uint64_t)w->s[reg + 1] << 32 : 0);
}

static inline void gfx_set_exec(const struct gfx *m, struct gfx_wave *w, uint64_t lanes)
{
	w->s[GFX_EXEC] = (uint32_t)lanes;
	if (m->lanes > 32)
		w->s[GFX_EXEC + 1] = (uint32_t)(lanes >> 32);
}

/* gfx942: 0 wave, 1 work-group, 2 agent, 3 system; gfx12: 0 compute unit, 1 shader engine, 2 device, 3 system. */
static inline unsigned gfx_scope(const struct gfx_inst *in)
{
	return in->isa == ISA_12 ? in->scope : in->glc | (unsigned)in->dlc << 1;
}

/* What s_waitcnt lets be outstanding. */
static inline unsigned gfx_wait_vm(const struct gfx_inst *in)
{
	unsigned imm = (uint16_t)in->imm;

	return in->isa == ISA_9 ? (imm & 15) | (imm >> 14 & 3) << 4 : imm >> 10 & 63;
}

static inline unsigned gfx_wait_lgkm(const struct gfx_inst *in)
{
	return in->isa == ISA_9 ? in->imm >> 8 & 15 : in->imm >> 4 & 63;
}

static inline uint32_t gfx_draw(struct gfx *m, uint32_t below)
{
	uint32_t drawn;

	m->random = m->random * 6364136223846793005u + 1442695040888963407u;
	drawn = (uint32_t)(m->random >> 33);
	if (!(below & (below - 1))) /* a division less */
		return below ? drawn & (below - 1) : 0;
	return drawn % below;
}

/* ---- Between the files ---- */

/* The waves of m until they have ended. 0, or -1 with m->error set and a trace printed. gfx_run_threads: in m->threads threads. */
int gfx_run(struct gfx *m);
int gfx_run_threads(struct gfx *m);
/* All instructions at once: decoding on first use is for one thread. */
void gfx_decode_all(struct gfx_code *c);
uint64_t gfx_read_scalar(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, const struct gfx_arg *a);
void gfx_write_scalar(struct gfx *m, struct gfx_wave *w, const struct gfx_arg *a, uint64_t value);
void gfx_scalar(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in);
void gfx_vector(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in);
void gfx_memory(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in);
void gfx_scalar_load(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, uint64_t addr);
void gfx_ready(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, uint64_t value);
void gfx_wait(struct gfx *m, struct gfx_wave *w, enum gfx_counter counter, unsigned most);
/* Does a wait last longer? */
bool gfx_stalls(struct gfx *m, struct gfx_wave *w);
void gfx_invalidate(struct gfx *m, struct gfx_wave *w, bool l1);
/* Invalidates and write-backs of gfx942 and gfx12, by scope. */
void gfx_invalidate_scope(struct gfx *m, struct gfx_wave *w, unsigned scope);
void gfx_write_back(struct gfx *m, struct gfx_wave *w, unsigned scope);
/* Everything, at the end of a kernel. */
void gfx_write_back_all(struct gfx *m);
/* Let some of what is pending happen. */
void gfx_stir(struct gfx *m, struct gfx_wave *w);
/* A line that was cached before comes back to some cache. */
void gfx_fetch_ahead(struct gfx *m, struct gfx_wave *w);
struct gfx_cache *gfx_cache_new(void);
void gfx_cache_free(struct gfx_cache *c);
/* Of gfx11's L2, by a packet's fences of system scope: what is dirty goes to memory; what is not is forgotten. Any thread. */
void gfx_near_write_back(struct gfx_cache *c);
void gfx_near_invalidate(struct gfx_cache *c);
/* Both of some bytes, before another party than a wave uses them. */
void gfx_near_flush(struct gfx_cache *c, const void *at, uint64_t size);
uint64_t gfx_atomic(struct gfx *m, const struct gfx_op *op, uint64_t old, uint64_t value, uint64_t compare, unsigned size);
void gfx_check_vector(struct gfx *m, struct gfx_wave *w, unsigned reg, unsigned count, uint64_t lanes);

#endif
