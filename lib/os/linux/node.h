/* SPDX-License-Identifier: MIT */
/* The owners and rights of device nodes. */
#ifndef GNV_OS_LINUX_NODE_H
#define GNV_OS_LINUX_NODE_H

/* Whose members may use the nodes that give nobody a device; the udev rule (tools/gpunvme) says the same. */
#define GNV_NODE_GROUP "gpunvme"

/* Is there such a user, and, but for root, in that group? Return: 0, -ENOENT, -EPERM; gnv_fail() has the message. */
int gnv_node_user(const char *user);

/* The node becomes the user's; one that does not exist is nobody's. Return: 0; -ENOENT no such user; -errno. */
int gnv_node_give(const char *path, const char *user);

/* Members of the group may open it; as it is where everybody may already, or it does not exist. Return: 0 or -errno. */
int gnv_node_admit(const char *path);

#endif
