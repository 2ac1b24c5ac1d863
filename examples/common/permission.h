/* SPDX-License-Identifier: MIT */
/*
 * Which targets programs may write to: the rule of --yes.
 */
#ifndef GPUNVME_EXAMPLES_PERMISSION_H
#define GPUNVME_EXAMPLES_PERMISSION_H

#include "session.h"

/* Have the blocks data from before this command, or with @writes, do they keep it after? GO_ON, or an exit code and a message. */
int session_lasts(const struct session *s, int writes);

/*
 * May this session write? The library decides (gpunvme_ns_may_overwrite()). Blocks that may hold data are written only with
 * --yes, and the refusal names the drive. Returns GO_ON, or an exit code after it has
 * said why.
 */
int session_may_write(const struct session *s, const struct session_opts *o);

/*
 * May this session lose all data of the namespace? As session_may_write(). Memory of this process holds nothing. An image needs
 * --yes, too: the library lets any program write one, so this is a rule of the verbs that write blocks which their user did not
 * name, in their own words. @instead: "", or another choice of the user, which ends the refusal.
 */
int session_may_destroy(const struct session *s, const struct session_opts *o, const char *instead);

#endif
