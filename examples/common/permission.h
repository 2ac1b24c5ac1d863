/* SPDX-License-Identifier: MIT */
/*
 * Who may write where: the rule behind --yes.
 */
#ifndef GPUNVME_EXAMPLES_PERMISSION_H
#define GPUNVME_EXAMPLES_PERMISSION_H

#include "session.h"

/* Is there something to move to or from blocks for later? GO_ON, or an exit code after it has said why not. */
int session_lasts(const struct session_opts *o);

/*
 * May this session write? An image file or memory of its own: yes, that is what it is for. Anything else could hold somebody's
 * data: only with --yes, and the refusal names the drive so that the user can tell which one it is. Answers GO_ON, or an exit code
 * after it has said why.
 */
int session_may_write(const struct session *s, const struct session_opts *o);

#endif
