/* SPDX-License-Identifier: MIT */
/*
 * Copies between files and a namespace: what read_file, write_file and the verbs read and write do. Chunk by chunk the host moves
 * bytes between the file and a buffer, and GPU or CPU threads move blocks between the buffer and the controller. Of N threads, each
 * makes every N-th transfer, through the queue that its number selects. The controller's data goes straight to or from the buffer.
 *
 * @opts->copies must be set, and catch_signals() have been called. Returns an exit code.
 */
#ifndef GPUNVME_EXAMPLES_COPY_H
#define GPUNVME_EXAMPLES_COPY_H

#include "session.h"

/*
 * Blocks from @opts->lba on to @file: exactly @bytes bytes (0: one block), also when the last block is longer. @file NULL or "-" is
 * standard output. The file appears under its name when it is complete, whatever happens before. A file that
 * exists is replaced only with @opts->force.
 */
int copy_to_file(const struct session_opts *opts, const char *file, uint64_t bytes);

/*
 * @file, which must not be empty, to blocks from @opts->lba on, at most @limit bytes of it. The last block is filled up with
 * zeroes. At the end one thread flushes the volatile cache of the drive, unless @opts->fua has put each write on the media. @file
 * NULL or "-" is standard input, whose length is not known before: each chunk is checked against the end of the namespace.
 */
int copy_from_file(const struct session_opts *opts, const char *file, uint64_t limit);

#endif
