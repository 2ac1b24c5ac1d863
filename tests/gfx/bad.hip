// SPDX-License-Identifier: MIT
// Kernels that do what they must not.
#define GLOBAL extern "C" __attribute__((global))

GLOBAL void nothing(void)
{
	__asm__ volatile("s_nop 0\n\ts_nop 0");
}

GLOBAL void wild_load(int *out)
{
	out[0] = *(volatile int *)(out + (1 << 20));
}

GLOBAL void wild_store(int *out)
{
	*(volatile int *)(out - 1) = 1;
}

GLOBAL void past_local(int *out)
{
	static __attribute__((shared)) int small[4];

	small[out[0] + __builtin_amdgcn_workitem_id_x()] = 1;
	__asm__ volatile("" ::: "memory");
	out[1] = small[out[0] & 3];
}

GLOBAL void endless(int *out)
{
	while (!*(volatile int *)out)
		;
}

GLOBAL void wild_jump(void)
{
	__asm__ volatile("s_mov_b64 s[4:5], 0\n\ts_setpc_b64 s[4:5]");
}

GLOBAL void no_wait(int *out)
{
	int v;

	__asm__ volatile("global_load_dword %0, %1, off\n\tv_add_nc_u32 %0, %0, %0" : "=&v"(v) : "v"(out));
	out[1] = v;
}
