/* SPDX-License-Identifier: MIT */
/* A descriptor that is readable from gnv_wake_ring() to gnv_wake_clear(). */
#ifndef GNV_PORT_WAKE_H
#define GNV_PORT_WAKE_H

/* Return: 0, -EMFILE; gnv_fail() has the message. */
int gnv_wake_open(int *fd);
void gnv_wake_ring(int fd);
void gnv_wake_clear(int fd);
void gnv_wake_close(int fd);

#endif
