// SPDX-License-Identifier: MIT
// hip_doorbell_poc URI: one Identify command. The CPU puts it into the admin queue, a kernel of one thread rings the doorbell, the
// controller writes the answer into GPU memory. Where that works the GPU's stores reach the controller and the controller's the GPU.
#include "session.h"

const char *const program = "hip_doorbell_poc";

__global__ void store(uint32_t *doorbell, uint32_t value)
{
	__hip_atomic_store(doorbell, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}

static int ring(void *doorbell, uint32_t tail)
{
	store<<<1, 1>>>((uint32_t *)doorbell, tail);
	return hipDeviceSynchronize() == hipSuccess ? 0 : -EIO;
}

int main(int argc, char **argv)
{
	struct gpunvme_qp_info where = {};
	gpunvme_sqe identify = {};
	char model[41] = {};
	session s;
	buffer page;

	if (argc != 2)
		die("usage: hip_doorbell_poc URI");
	s.open(argv[1], 0, 1);
	where.size = sizeof(where);
	check(gpunvme_qp_info(s.qp[0], &where));
	if (strstr(where.rung, "+fwd"))
		die(std::string("the GPU's stores do not reach this controller (rung ") + where.rung + "): a CPU thread rings for it");
	// The doorbells stand in a row: the admin queue's is 2 * qid places before that of queue qid.
	char *doorbell = (char *)s.view[0].sq_db - 2 * s.view[0].qid * (4ull << s.info.dstrd);
	page.open(s.gpu, s.dev, 4096);
	check(hipMemset(page.ptr, 0, 4096), "hipMemset");
	identify.opc = GPUNVME_ADMIN_IDENTIFY;
	identify.cdw10 = 1; // the controller
	check(gpunvme_dev_admin_rung(s.dev, &identify, &page.dbuf, ring, doorbell, nullptr));
	check(hipMemcpy(model, (char *)page.ptr + 24, 40, hipMemcpyDeviceToHost), "hipMemcpy");
	for (char *end = model + 40; end > model && end[-1] == ' ';)
		*--end = 0;
	printf("model in GPU memory: %s\n", model);
	page.close();
	s.close();
	return 0;
}
