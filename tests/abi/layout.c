/* SPDX-License-Identifier: MIT */
/*
 * Sizes and offsets that programs have compiled in. A change here breaks users: give the structure a new field at its end, or
 * raise GPUNVME_DQ_MAJOR. The layouts of dq.h and spec.h have their asserts beside them.
 */
#include <gpunvme/gpunvme.h>

#define PIN_SIZE(type, bytes) GPUNVME_STATIC_ASSERT(sizeof(struct type) == (bytes), "size of " #type)
#define PIN(type, field, byte) GPUNVME_STATIC_ASSERT(offsetof(struct type, field) == (byte), #type "." #field)

PIN_SIZE(gpunvme_dev_opts, 48);
PIN(gpunvme_dev_opts, admin_timeout_ms, 24);
PIN(gpunvme_dev_opts, queues, 28);
PIN(gpunvme_dev_opts, share, 32);
PIN(gpunvme_dev_opts, watchdog_ms, 40);
PIN_SIZE(gpunvme_gpu_opts, 24);
PIN_SIZE(gpunvme_mem_opts, 16);
PIN_SIZE(gpunvme_qp_opts, 24);
PIN(gpunvme_qp_opts, depth, 12);
PIN_SIZE(gpunvme_view, 32);
PIN(gpunvme_view, lba, 16);
PIN_SIZE(gpunvme_dev_info, 216);
PIN(gpunvme_dev_info, model, 8);
PIN(gpunvme_dev_info, transport, 79);
PIN_SIZE(gpunvme_ns_info, 56);
PIN(gpunvme_ns_info, nblocks, 16);
PIN_SIZE(gpunvme_gpu_info, 88);
PIN_SIZE(gpunvme_gpu_entry, 136);
PIN(gpunvme_gpu_entry, vram, 104);
PIN(gpunvme_gpu_entry, asleep, 132);
PIN_SIZE(gpunvme_pci_path, 16);
PIN_SIZE(gpunvme_pci_info, 320);
PIN_SIZE(gpunvme_check, 532);
PIN_SIZE(gpunvme_qp_info, 96);
PIN(gpunvme_qp_info, submitted, 32);
PIN(gpunvme_qp_info, rung, 64);
PIN(gpunvme_qp_info, recoveries, 80);
PIN(gpunvme_qp_info, errors, 88);
PIN_SIZE(gpunvme_qp_latency, 16 + 8 * 496);
PIN(gpunvme_qp_latency, bucket, 16);
PIN_SIZE(gpunvme_litmus_opts, 16);
PIN_SIZE(gpunvme_litmus_result, 200);
PIN_SIZE(gpunvme_litmus, 1016);
PIN_SIZE(gpunvme_dq, 160);
PIN(gpunvme_dq, lba_first, 112);
PIN_SIZE(gpunvme_dq_state, 768);
PIN_SIZE(gpunvme_dbuf, 40);
PIN_SIZE(gpunvme_req, 24);
PIN_SIZE(gpunvme_dvol, 64);
PIN(gpunvme_dvol, lba_first, 40);
PIN_SIZE(gpunvme_dvbuf, 32);
PIN_SIZE(gpunvme_copy, 56);
PIN(gpunvme_copy, lba, 24);
PIN_SIZE(gpunvme_volume_opts, 32);
PIN_SIZE(gpunvme_volume_info, 48);
PIN(gpunvme_volume_info, nblocks, 24);

/* The asserts are the test. */
int main(void)
{
	return 0;
}
