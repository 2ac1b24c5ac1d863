/* SPDX-License-Identifier: MIT */
/*
 * Sizes and offsets that programs have compiled in. Between releases of one ABI a structure only grows at its end: then its size
 * here changes and nothing else. For dq.h raise GPUNVME_DQ_MAJOR. The layouts of dq.h and spec.h have asserts of their own there.
 */
#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>

#define PIN_SIZE(type, bytes) GPUNVME_STATIC_ASSERT(sizeof(struct type) == (bytes), "size of " #type)
#define PIN(type, field, byte) GPUNVME_STATIC_ASSERT(offsetof(struct type, field) == (byte), #type "." #field)

PIN_SIZE(gpunvme_dev_opts, 56);
PIN(gpunvme_dev_opts, admin_timeout_ms, 24);
PIN(gpunvme_dev_opts, queues, 28);
PIN(gpunvme_dev_opts, share, 32);
PIN(gpunvme_dev_opts, watchdog_ms, 40);
PIN(gpunvme_dev_opts, flags, 48);
PIN_SIZE(gpunvme_gpu_opts, 24);
PIN_SIZE(gpunvme_mem_opts, 16);
PIN_SIZE(gpunvme_queue_opts, 32);
PIN(gpunvme_queue_opts, depth, 12);
PIN(gpunvme_queue_opts, stripe, 24);
PIN_SIZE(gpunvme_view, 32);
PIN(gpunvme_view, lba, 16);
PIN_SIZE(gpunvme_dev_info, 688);
PIN(gpunvme_dev_info, faulty, 488);
PIN(gpunvme_dev_info, generation, 672);
PIN(gpunvme_dev_info, hmb, 440);
PIN(gpunvme_dev_info, late, 668);
PIN(gpunvme_dev_info, link, 656);
PIN(gpunvme_dev_info, model, 8);
PIN(gpunvme_dev_info, no_link, 684);
PIN(gpunvme_dev_info, state, 680);
PIN(gpunvme_dev_info, transport, 79);
PIN(gpunvme_dev_info, why, 496);
PIN_SIZE(gpunvme_event, 208);
PIN(gpunvme_event, queue, 24);
PIN(gpunvme_event, detail, 40);
PIN(gpunvme_event, why, 48);
PIN_SIZE(gpunvme_fault, 216);
PIN(gpunvme_fault, word, 8);
PIN_SIZE(gpunvme_ns_info, 120);
PIN(gpunvme_ns_info, boundary, 56);
PIN(gpunvme_ns_info, medium, 96);
PIN(gpunvme_ns_info, nblocks, 16);
PIN_SIZE(gpunvme_gpu_info, 88);
PIN_SIZE(gpunvme_gpu_entry, 128);
PIN(gpunvme_gpu_entry, vram, 96);
PIN(gpunvme_gpu_entry, asleep, 124);
PIN_SIZE(gpunvme_pci_path, 16);
PIN_SIZE(gpunvme_pci_info, 360);
PIN(gpunvme_pci_info, link_width_most, 356);
PIN(gpunvme_pci_info, payload, 312);
PIN(gpunvme_pci_info, unseen, 156);
PIN_SIZE(gpunvme_check, 532);
PIN_SIZE(gpunvme_queue_info, 120);
PIN(gpunvme_queue_info, nblocks, 24);
PIN(gpunvme_queue_info, qid, 32);
PIN(gpunvme_queue_info, recoveries, 60);
PIN(gpunvme_queue_info, submitted, 64);
PIN(gpunvme_queue_info, placement, 104);
PIN_SIZE(gpunvme_queue_latency, 16 + 8 * 496);
PIN(gpunvme_queue_latency, bucket, 16);
PIN_SIZE(gpunvme_server_opts, 32);
PIN(gpunvme_server_opts, log_ctx, 16);
PIN_SIZE(gpunvme_ublk_opts, 32);
PIN(gpunvme_ublk_opts, max_bytes, 24);
PIN_SIZE(gpunvme_ublk_info, 88);
PIN(gpunvme_ublk_info, path, 48);
PIN(gpunvme_ublk_info, error, 80);
PIN_SIZE(gpunvme_ordering_opts, 48);
PIN_SIZE(gpunvme_ordering_result, 200);
PIN_SIZE(gpunvme_ordering, 1224);
PIN(gpunvme_ordering, test, 24);
PIN_SIZE(gpunvme_dq, 160);
PIN(gpunvme_dq, lba_first, 112);
PIN_SIZE(gpunvme_dq_state, 768);
PIN(gpunvme_dq_state, detached_errors, 536);
PIN(gpunvme_dq_state, control, 544);
PIN_SIZE(gpunvme_dbuf, 40);
PIN_SIZE(gpunvme_mem_use, 56);
PIN_SIZE(gpunvme_file_opts, 48);
PIN(gpunvme_file_opts, progress, 24);
PIN_SIZE(gpunvme_file_info, 112);
PIN(gpunvme_file_info, uuid, 88);
PIN_SIZE(gpunvme_dirent, 288);
PIN_SIZE(gpunvme_dfile, 64);
PIN_SIZE(gpunvme_file_entry, 48);
PIN_SIZE(gpunvme_dfiles, 80);
PIN_SIZE(gpunvme_dentry, 16);
PIN_SIZE(gpunvme_dname, 16);
PIN_SIZE(gpunvme_cursor, 40);
PIN_SIZE(gpunvme_cache_opts, 48);
PIN(gpunvme_cache_opts, file, 40);
PIN(gpunvme_cache_opts, lba, 24);
PIN_SIZE(gpunvme_cache_info, 136);
PIN(gpunvme_cache_info, prefetches, 72);
PIN(gpunvme_cache_info, writes, 104);
PIN(gpunvme_cache_info, copied, 128);
PIN(gpunvme_cache_info, hits, 32);
PIN_SIZE(gpunvme_dpages, 128);
PIN_SIZE(gpunvme_cached_queue, 16);
PIN_SIZE(gpunvme_cached_file, 16);
PIN_SIZE(gpunvme_cached_volume, 16);
PIN_SIZE(gpunvme_prefetch_queue, 16);
PIN_SIZE(gpunvme_prefetch_file, 16);
PIN_SIZE(gpunvme_prefetch_volume, 16);
PIN_SIZE(gpunvme_writable_queue, 16);
PIN_SIZE(gpunvme_writable_file, 16);
PIN_SIZE(gpunvme_writable_volume, 16);
PIN_SIZE(gpunvme_page, 16);
PIN_SIZE(gpunvme_mem_cache_info, 64);
PIN(gpunvme_mem_cache_info, used, 60);
PIN_SIZE(gpunvme_req, 24);
PIN_SIZE(gpunvme_dvol, 64);
PIN(gpunvme_dvol, lba_first, 40);
PIN_SIZE(gpunvme_dvbuf, 32);
PIN_SIZE(gpunvme_commands, 24);
PIN_SIZE(gpunvme_command, 32);
PIN(gpunvme_command, status, 28);
PIN_SIZE(gpunvme_run, 96);
PIN(gpunvme_run, list, 72);
PIN(gpunvme_run, target, 88);
PIN_SIZE(gpunvme_landing_opts, 16);
PIN_SIZE(gpunvme_landing_info, 32);
PIN(gpunvme_landing_info, landing, 28);
PIN_SIZE(gpunvme_target, 104);
PIN(gpunvme_target, use, 40);
PIN_SIZE(gpunvme_transfer, 40);
PIN(gpunvme_transfer, result, 32);
PIN_SIZE(gpunvme_workload, 56);
PIN(gpunvme_workload, commands, 32);
PIN_SIZE(gpunvme_copy, 56);
PIN(gpunvme_copy, lba, 24);

/* The asserts are the test. */
int main(void)
{
	return 0;
}
