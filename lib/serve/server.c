/* SPDX-License-Identifier: MIT */
/*
 * Life of a server: controller, socket, thread.
 * Invariant: the controller is destroyed before the memory of a client is unmapped, and before the space of its DMA. The connection
 * of a client is closed when its memory is no longer accessed.
 */
#include <gpunvme/serve.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mem/space_soft.h"
#include "os/linux/event.h"
#include "os/linux/passed.h"
#include "port/port.h"
#include "serve/server.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"
#include "util/thread.h"

/* The IDs of QEMU's emulated NVMe controller (docs/specs/pci-ids.rst), unless the URI has others. */
#define VENDOR 0x1b36
#define DEVICE 0x0010
#define RETRY_MS 100

static bool stopped(const struct gpunvme_server *s)
{
	return __atomic_load_n(&s->stop, __ATOMIC_ACQUIRE);
}

static void *serve(void *arg)
{
	struct gpunvme_server *s = arg;
	int client;

	while (!stopped(s)) {
		client = gnv_passed_too_many() ? -EMFILE : gnv_socket_accept(&s->socket);
		if (client >= 0)
			gnv_session_run(s, client);
		else if (client == -EMFILE || client == -ENFILE || client == -ENOMEM)
			gnv_socket_wait(s->wake, -1, false, RETRY_MS); /* the client waits, and poll() for it would not */
		else
			gnv_socket_wait(s->wake, s->socket.fd, false, -1);
	}
	return NULL;
}

/* ---- Start ---- */

static int read_uri(const char *text, struct gnv_uri *uri, struct gnv_soft_config *config, struct gpunvme_server *s)
{
	int ret = gnv_uri_parse(text, uri);

	if (ret)
		return ret;
	if (strcmp(uri->scheme, "soft"))
		ret = gnv_fail(-EINVAL, "%.100s: only a software controller can be served. Use soft:PATH", text);
	if (!ret)
		ret = gnv_port_soft_config(uri, config, &s->vendor, &s->device);
	if (!ret && config->cmb)
		ret = gnv_fail(-EINVAL, "cmb=%u in the URI: a vfio-user controller has no memory of its own. Leave it out", config->cmb);
	if (ret)
		gnv_uri_fini(uri);
	return ret;
}

static int make_controller(struct gpunvme_server *s, struct gnv_soft_config *config)
{
	const bool one = gnv_soft_has(&config->quirks, GNV_SOFT_ONE_VECTOR);
	size_t len;
	int ret = gnv_vectors_init(&s->vectors, one ? 1 : config->queues + 1);

	if (ret)
		return ret;
	ret = gnv_soft_space_create(&s->space);
	if (ret) {
		gnv_fail(ret, "no memory for the address space of the software controller");
		goto free_vectors;
	}
	config->shared = true;
	config->vendor = s->vendor;
	config->irq = (struct gnv_soft_irq){ gnv_vectors_raise, &s->vectors, s->vectors.count };
	ret = gnv_soft_create(config, s->space, &s->log, &s->soft);
	if (ret)
		goto close_space;
	s->maps.space = s->space;
	s->maps.soft = s->soft;
	s->maps.log = &s->log;
	gnv_soft_bar(s->soft, &len);
	gnv_function_init(&s->function, s->vendor, s->device, len, s->vectors.count);
	gnv_soft_allow_dma(s->soft, false); /* nothing is under way */
	return 0;

close_space:
	gnv_space_put(s->space);
free_vectors:
	gnv_vectors_fini(&s->vectors);
	return ret;
}

/* Return: 0; -EBUSY all stays. */
static int end_controller(struct gpunvme_server *s)
{
	int ret = gnv_soft_destroy(s->soft);

	if (ret)
		return ret;
	s->soft = NULL;
	gnv_dma_maps_end(&s->maps);
	if (s->client >= 0)
		gnv_socket_disconnect(s->client);
	gnv_space_put(s->space);
	gnv_vectors_fini(&s->vectors);
	return 0;
}

static int start_thread(struct gpunvme_server *s)
{
	int ret;

	s->wake = gnv_event_open();
	if (s->wake < 0)
		return gnv_fail(s->wake, "no descriptor for the server: %s", strerror(-s->wake));
	ret = gnv_thread_start(&s->thread, serve, s);
	if (!ret)
		return 0;
	gnv_event_close(s->wake);
	return gnv_fail(ret, "no thread for the server. Raise the limit of threads (ulimit -u)");
}

static int start(struct gpunvme_server *s, struct gnv_soft_config *config, const char *socket)
{
	int ret = make_controller(s, config);

	if (ret)
		return ret;
	ret = gnv_socket_listen(socket, &s->socket);
	if (ret)
		goto end_controller;
	ret = start_thread(s);
	if (ret)
		goto close_socket;
	return 0;

close_socket:
	gnv_socket_close(&s->socket);
end_controller:
	end_controller(s); /* it had nothing to do yet */
	return ret;
}

GPUNVME_API int gpunvme_server_start(const char *uri, const char *socket, const struct gpunvme_server_opts *opts,
				     struct gpunvme_server **out)
{
	struct gpunvme_server_opts o = GPUNVME_SERVER_OPTS_INIT;
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;
	struct gpunvme_server *s;
	struct gnv_uri parsed;
	int ret;

	if (!uri || !socket || !out)
		return gnv_null("uri, socket and server");
	ret = gnv_opts_copy(&o, opts, gpunvme_server_opts);
	if (!ret && (o.flags & ~(uint32_t)GPUNVME_SERVER_CAREFUL || o.reserved))
		ret = gnv_fail(-EINVAL, "unknown server flags 0x%x. Valid: GPUNVME_SERVER_CAREFUL", o.flags);
	if (ret)
		return ret;
	s = calloc(1, sizeof(*s));
	if (!s)
		return gnv_fail(-ENOMEM, "out of memory");
	s->process = gnv_process();
	s->log = (struct gnv_log){ o.log, o.log_ctx, 0 };
	s->client = -1;
	s->vendor = VENDOR;
	s->device = DEVICE;
	ret = read_uri(uri, &parsed, &config, s);
	config.careful = o.flags & GPUNVME_SERVER_CAREFUL;
	if (!ret) {
		ret = start(s, &config, socket);
		gnv_uri_fini(&parsed);
	}
	if (ret) {
		free(s);
		return ret;
	}
	*out = s;
	return 0;
}

/* ---- Stop ---- */

GPUNVME_API int gpunvme_server_stop(struct gpunvme_server *s)
{
	int ret;

	if (!s)
		return 0;
	if (gnv_foreign(s->process))
		return -ECHILD;
	if (!s->joined) {
		__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
		gnv_event_set(s->wake);
		pthread_join(s->thread, NULL);
		s->joined = true;
		gnv_socket_close(&s->socket);
		gnv_event_close(s->wake);
	}
	ret = end_controller(s);
	if (ret)
		return ret;
	gnv_log_end(&s->log);
	free(s);
	return 0;
}
