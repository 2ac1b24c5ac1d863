/* SPDX-License-Identifier: MIT */
/*
 * The controller's functions for I/O commands (lib/soft/core), compiled again as a part of the kernel. They use the data of a team
 * (shared.h). A prefix of their names keeps them apart from the functions of the library's own threads.
 */
#ifndef GNV_VDRIVE_CORE_H
#define GNV_VDRIVE_CORE_H

#define gnv_soft_segs gnv_vd_segs
#define gnv_soft_dma gnv_vd_dma
#define gnv_soft_data gnv_vd_data

#define gnv_soft_parse vd_soft_parse
#define gnv_soft_check_range vd_soft_check_range
#define gnv_soft_check_flags vd_soft_check_flags
#define gnv_soft_is_final vd_soft_is_final
#define gnv_soft_io_begin vd_soft_io_begin
#define gnv_soft_io_look vd_soft_io_look
#define gnv_soft_io_step vd_soft_io_step
#define gnv_soft_io_flush vd_soft_io_flush
#define gnv_soft_dptr vd_soft_dptr
#define gnv_soft_carry_out vd_soft_carry_out
#define gnv_soft_posted_early vd_soft_posted_early
#define gnv_soft_action_io vd_soft_action_io
#define gnv_soft_action_data vd_soft_action_data
#define gnv_soft_action_entry vd_soft_action_entry
#define gnv_soft_fault_is_for vd_soft_fault_is_for
#define gnv_soft_fault_draw vd_soft_fault_draw
#define gnv_soft_fault_befall vd_soft_fault_befall
#define gnv_soft_fault_judge vd_soft_fault_judge
#define gnv_soft_fault_judge_enable vd_soft_fault_judge_enable
#define gnv_soft_timing_init vd_soft_timing_init
#define gnv_soft_timing_due vd_soft_timing_due
#define gnv_soft_timing_forget vd_soft_timing_forget
#define gnv_soft_timing_is_idle vd_soft_timing_is_idle

#define gnv_soft_list_open vd_soft_list_open
#define gnv_soft_list_close vd_soft_list_close
#define gnv_soft_sgl_read vd_soft_sgl_read
#define gnv_soft_segs_add vd_soft_segs_add
#define gnv_soft_segs_clear vd_soft_segs_clear
#define gnv_soft_data_map vd_soft_data_map
#define gnv_soft_data_drop vd_soft_data_drop
#define gnv_soft_data_advance vd_soft_data_advance
#define gnv_soft_data_must_be_apart vd_soft_data_must_be_apart
#define gnv_soft_data_fill vd_soft_data_fill
#define gnv_soft_data_hand_over vd_soft_data_hand_over
#define gnv_soft_data_compare vd_soft_data_compare
#define gnv_soft_data_flip vd_soft_data_flip
#define gnv_soft_data_take_ranges vd_soft_data_take_ranges
#define gnv_soft_data_ranges vd_soft_data_ranges
#define gnv_soft_data_lost vd_soft_data_lost

#include "soft/core/cmd.c" /* quiet bugprone-suspicious-include: a kernel is one unit */
#include "soft/core/dptr.c" /* quiet bugprone-suspicious-include: a kernel is one unit */
#include "soft/core/io.c" /* quiet bugprone-suspicious-include: a kernel is one unit */
#include "soft/core/fault_match.c" /* quiet bugprone-suspicious-include: a kernel is one unit */
#include "soft/core/fault_action.c" /* quiet bugprone-suspicious-include: a kernel is one unit */
#include "soft/core/timing.c" /* quiet bugprone-suspicious-include: a kernel is one unit */

#endif
