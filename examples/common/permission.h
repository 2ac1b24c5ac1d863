/* SPDX-License-Identifier: MIT */
/*
* Which targets programs may write to: the rule of --yes.
 */
#ifndef GPUNVME_EXAMPLES_PERMISSION_H
#define GPUNVME_EXAMPLES_PERMISSION_H

#include "session.h"

/* Is there something to move to or from blocks for later? GO_ON, or an exit code after it has said why not. */
int session_lasts(const struct session *s);

/*
 * May this session write? The library decides (gpunvme_ns_may_overwrite()); what may hold somebody's data is written only with
 * --yes, and the refusal names the drive so that the user can tell which one it is. Returns GO_ON, or an exit code after it has
 * said why.
 */
int session_may_write(const struct session *s, const struct session_opts *o);

#endif
