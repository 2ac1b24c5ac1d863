/* SPDX-License-Identifier: MIT */
/*
 * Results as text, and the version. Status names are those of the Base Specification 3.3.3.2.1 and the NVM Command Set
 * Specification 2.
 * Invariant: every text is a constant, so that any thread may ask at any time.
 */
#include <errno.h>
#include <gpunvme/dq.h>
#include <gpunvme/status.h>

#include "util/bits.h"
#include "util/entry.h"

struct name {
	int code;
	const char *text;
};

static const struct name statuses[] = {
	{ GPUNVME_SC_SUCCESS, "Successful Completion" },
	{ GPUNVME_SC_INVALID_OPCODE, "Invalid Command Opcode" },
	{ GPUNVME_SC_INVALID_FIELD, "Invalid Field in Command" },
	{ GPUNVME_SC_CID_CONFLICT, "Command ID Conflict" },
	{ GPUNVME_SC_DATA_TRANSFER, "Data Transfer Error" },
	{ GPUNVME_SC_POWER_LOSS, "Commands Aborted due to Power Loss Notification" },
	{ GPUNVME_SC_INTERNAL, "Internal Error" },
	{ GPUNVME_SC_ABORT_REQUESTED, "Command Abort Requested" },
	{ GPUNVME_SC_ABORT_SQ_DELETED, "Command Aborted due to SQ Deletion" },
	{ GPUNVME_SC_ABORT_FUSED_FAIL, "Command Aborted due to Failed Fused Command" },
	{ GPUNVME_SC_ABORT_FUSED_MISSING, "Command Aborted due to Missing Fused Command" },
	{ GPUNVME_SC_INVALID_NS, "Invalid Namespace or Format" },
	{ GPUNVME_SC_COMMAND_SEQUENCE, "Command Sequence Error" },
	{ GPUNVME_SC_INVALID_SGL_SEGMENT, "Invalid SGL Segment Descriptor" },
	{ GPUNVME_SC_INVALID_SGL_COUNT, "Invalid Number of SGL Descriptors" },
	{ GPUNVME_SC_INVALID_SGL_LENGTH, "Data SGL Length Invalid" },
	{ GPUNVME_SC_INVALID_SGL_METADATA, "Metadata SGL Length Invalid" },
	{ GPUNVME_SC_INVALID_SGL_TYPE, "SGL Descriptor Type Invalid" },
	{ GPUNVME_SC_INVALID_CMB_USE, "Invalid Use of Controller Memory Buffer" },
	{ GPUNVME_SC_INVALID_PRP_OFFSET, "PRP Offset Invalid" },
	{ GPUNVME_SC_ATOMIC_WRITE_UNIT, "Atomic Write Unit Exceeded" },
	{ GPUNVME_SC_OPERATION_DENIED, "Operation Denied" },
	{ GPUNVME_SC_NS_WRITE_PROTECTED, "Namespace is Write Protected" },
	{ GPUNVME_SC_COMMAND_INTERRUPTED, "Command Interrupted" },
	{ GPUNVME_SC_TRANSIENT_TRANSPORT, "Transient Transport Error" },
	{ GPUNVME_SC_LBA_RANGE, "LBA Out of Range" },
	{ GPUNVME_SC_CAPACITY_EXCEEDED, "Capacity Exceeded" },
	{ GPUNVME_SC_NS_NOT_READY, "Namespace Not Ready" },
	{ GPUNVME_SC_RESERVATION_CONFLICT, "Reservation Conflict" },
	{ GPUNVME_SC_FORMAT_IN_PROGRESS, "Format In Progress" },
	{ GPUNVME_SC_CQ_INVALID, "Completion Queue Invalid" },
	{ GPUNVME_SC_INVALID_QID, "Invalid Queue Identifier" },
	{ GPUNVME_SC_INVALID_QUEUE_SIZE, "Invalid Queue Size" },
	{ GPUNVME_SC_ABORT_LIMIT, "Abort Command Limit Exceeded" },
	{ GPUNVME_SC_AER_LIMIT, "Asynchronous Event Request Limit Exceeded" },
	{ GPUNVME_SC_INVALID_VECTOR, "Invalid Interrupt Vector" },
	{ GPUNVME_SC_INVALID_LOG_PAGE, "Invalid Log Page" },
	{ GPUNVME_SC_INVALID_QUEUE_DELETION, "Invalid Queue Deletion" },
	{ GPUNVME_SC_FEATURE_NOT_SAVEABLE, "Feature Identifier Not Saveable" },
	{ GPUNVME_SC_FEATURE_NOT_CHANGEABLE, "Feature Not Changeable" },
	{ GPUNVME_SC_FEATURE_NOT_NS, "Feature Not Namespace Specific" },
	{ GPUNVME_SC_CONFLICTING_ATTRIBUTES, "Conflicting Attributes" },
	{ GPUNVME_SC_INVALID_PROTECTION, "Invalid Protection Information" },
	{ GPUNVME_SC_READ_ONLY_RANGE, "Attempted Write to Read Only Range" },
	{ GPUNVME_SC_SIZE_LIMIT, "Command Size Limit Exceeded" },
	{ GPUNVME_SC_WRITE_FAULT, "Write Fault" },
	{ GPUNVME_SC_UNRECOVERED_READ, "Unrecovered Read Error" },
	{ GPUNVME_SC_GUARD_CHECK, "End-to-end Guard Check Error" },
	{ GPUNVME_SC_APPTAG_CHECK, "End-to-end Application Tag Check Error" },
	{ GPUNVME_SC_REFTAG_CHECK, "End-to-end Reference Tag Check Error" },
	{ GPUNVME_SC_COMPARE_FAILURE, "Compare Failure" },
	{ GPUNVME_SC_ACCESS_DENIED, "Access Denied" },
	{ GPUNVME_SC_SANITIZE_FAILED, "Sanitize Failed" },
	{ GPUNVME_SC_SANITIZE_IN_PROGRESS, "Sanitize In Progress" },
	{ GPUNVME_SC_DEALLOCATED, "Deallocated or Unwritten Logical Block" },
	{ GPUNVME_SC_PATH_INTERNAL, "Internal Path Error" },
	{ GPUNVME_SC_ANA_LOSS, "Asymmetric Access Persistent Loss" },
	{ GPUNVME_SC_ANA_INACCESSIBLE, "Asymmetric Access Inaccessible" },
	{ GPUNVME_SC_ANA_TRANSITION, "Asymmetric Access Transition" },
	{ GPUNVME_SC_CTRL_PATH, "Controller Pathing Error" },
	{ GPUNVME_SC_HOST_PATH, "Host Pathing Error" },
	{ GPUNVME_SC_HOST_ABORTED, "Command Aborted By Host" },
};

static const struct name errors[] = {
	{ EPERM, "operation not permitted" },
	{ ENOENT, "no such file, device or namespace" },
	{ EINTR, "interrupted" },
	{ EIO, "input/output error" },
	{ ENXIO, "no such device or address" },
	{ EBADF, "bad file descriptor" },
	{ E2BIG, "too many for one table" },
	{ EAGAIN, "the queue is full, or there are no more threads. Try again after a poll" },
	{ ENOMEM, "out of memory, or over a memory limit" },
	{ EACCES, "permission denied" },
	{ EFAULT, "not usable memory" },
	{ EBUSY, "still in use by the device, or held by another process" },
	{ EEXIST, "exists already" },
	{ EXDEV, "it belongs to another queue, device or GPU" },
	{ ENODEV, "the controller does not exist or is gone" },
	{ ENOTDIR, "not a directory" },
	{ EISDIR, "is a directory" },
	{ EINVAL, "invalid argument" },
	{ ENFILE, "too many open files in the system" },
	{ EMFILE, "too many open files" },
	{ EFBIG, "file too large" },
	{ ENOSPC, "no space, or no free queue" },
	{ EROFS, "read-only" },
	{ ERANGE, "outside the buffer, window or namespace" },
	{ ENAMETOOLONG, "file name too long" },
	{ ENOSYS, "not implemented by the system" },
	{ ELOOP, "too many symbolic links" },
	{ EOVERFLOW, "value too large" },
	{ ENODATA, "there is no data" },
	{ ENOTUNIQ, "names of several files have this hash" },
	{ EADDRINUSE, "the address is in use" },
	{ EUCLEAN, "damaged: the file system or partition table needs a check" },
	{ ECHILD, "belongs to the parent of this process" },
	{ EPROTO, "the device broke the protocol, and the queue is poisoned" },
	{ EMSGSIZE, "too long: for one command of a submit, or 2^32 blocks or more" },
	{ EPROTONOSUPPORT, "no descriptor, or one of another version than the code that uses it" },
	{ EOPNOTSUPP, "not supported by this controller, machine or build" },
	{ ESHUTDOWN, "the queue or the controller has ended. Recover it" },
	{ ETIMEDOUT, "timed out" },
	{ ESTALE, "the handle is old or was consumed" },
	{ ECANCELED, "stopped by the host" },
};

/* dq.h spells the device's values out. Here they are compared with the system's. */
_Static_assert(GPUNVME_EAGAIN == EAGAIN && GPUNVME_EBUSY == EBUSY && GPUNVME_EXDEV == EXDEV && GPUNVME_ENODEV == ENODEV,
	       "errno values");
_Static_assert(GPUNVME_EINVAL == EINVAL && GPUNVME_EROFS == EROFS && GPUNVME_ERANGE == ERANGE && GPUNVME_EPROTO == EPROTO,
	       "errno values");
_Static_assert(GPUNVME_EMSGSIZE == EMSGSIZE && GPUNVME_EPROTONOSUPPORT == EPROTONOSUPPORT && GPUNVME_EOPNOTSUPP == EOPNOTSUPP,
	       "errno values");
_Static_assert(GPUNVME_ESHUTDOWN == ESHUTDOWN && GPUNVME_ETIMEDOUT == ETIMEDOUT && GPUNVME_ESTALE == ESTALE &&
		       GPUNVME_ECANCELED == ECANCELED,
	       "errno values");

static const char *find(const struct name *names, size_t count, int code, const char *otherwise)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (names[i].code == code)
			return names[i].text;
	return otherwise;
}

static const char *unknown_status(int status)
{
	switch (GPUNVME_FIELD_GET(GPUNVME_ST_SCT, (unsigned)status)) {
	case 0:
		return "Unknown Generic Command Status";
	case 1:
		return "Unknown Command Specific Status";
	case 2:
		return "Unknown Media and Data Integrity Error";
	case 3:
		return "Unknown Path Related Status";
	case 7:
		return "Vendor Specific Status";
	default:
		return "Unknown Status";
	}
}

GPUNVME_API const char *gpunvme_strerror(int ret)
{
	int code = ret & GPUNVME_ST_CODE;

	if (!ret)
		return "success";
	if (ret > 0)
		return find(statuses, GNV_ARRAY_LEN(statuses), code, unknown_status(code));
	return ret < -4095 ? "unknown error" : find(errors, GNV_ARRAY_LEN(errors), -ret, "unknown error");
}

int gnv_view_check(uint32_t version, uint32_t size, size_t known)
{
	if (version >> 16 == GPUNVME_DQ_MAJOR && size == known)
		return 0;
	return gnv_fail(-EPROTONOSUPPORT, "the caller was compiled with dq.h %u.%u (%u bytes), the library with %u.%u. Compile it "
					  "again",
			version >> 16, version & 0xffff, size, GPUNVME_DQ_MAJOR, GPUNVME_DQ_MINOR);
}

GPUNVME_API unsigned gpunvme_version(void)
{
	return GPUNVME_VERSION_MAJOR << 16 | GPUNVME_VERSION_MINOR << 8 | GPUNVME_VERSION_PATCH;
}
