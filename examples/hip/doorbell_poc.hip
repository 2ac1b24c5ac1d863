// SPDX-License-Identifier: MIT
// hip_doorbell_poc URI: one Identify command. The CPU puts it into the admin queue, a kernel of one thread rings the doorbell, the
// controller writes the answer into memory of the GPU, or of the host. Where that works the GPU's stores reach the controller.
#include "session.h"

#include <gpunvme/unstable.h>

#include <array>

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
	gpunvme_sqe identify = {};
	std::array<char, 4096> answer = {};
	char model[41] = {};
	session s;
	buffer page;

	if (argc != 2)
		die("usage: hip_doorbell_poc URI");
	s.open(argv[1], 0, 1);
	if (s.placement.find("+fwd") != std::string::npos)
		die("the GPU's stores do not reach this controller (placement " + s.placement + "): a CPU thread rings for it");
	// The doorbells stand in a row: the admin queue's is 2 * qid places before that of queue qid.
	char *doorbell = (char *)s.view[0].sq_db - 2 * s.view[0].qid * (4ull << s.info.dstrd);
	page.open(s.gpu, s.dev, s.queue[0], s.placement, answer.size());
	page.put(answer.data(), answer.size());
	identify.opc = GPUNVME_ADMIN_IDENTIFY;
	identify.cdw10 = 1; // the controller
	check(gpunvme_dev_admin_doorbell(s.dev, &identify, &page.dbuf, ring, doorbell, nullptr));
	page.get(answer.data(), answer.size());
	memcpy(model, &answer[24], 40);
	for (char *end = model + 40; end > model && end[-1] == ' ';)
		*--end = 0;
	printf("model in %s, placement %s: %s\n", page.where(), s.placement.c_str(), model);
	page.close();
	s.close();
	return 0;
}
