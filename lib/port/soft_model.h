/* SPDX-License-Identifier: MIT */
/* Keys of a URI that say how fast a software controller is to be. */
#ifndef GNV_PORT_SOFT_MODEL_H
#define GNV_PORT_SOFT_MODEL_H

#include "port/port.h"
#include "soft/core/timing.h"

/* Take these keys. Return: 0; -EINVAL with an error message. The controller checks the combination of values. */
int gnv_port_soft_model(struct gnv_uri *uri, struct gnv_soft_model *model);

#endif
