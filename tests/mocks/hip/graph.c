/* SPDX-License-Identifier: MIT */
/*
 * Captures and graphs of kernels, as the runtime has them (clr hip_graph.cpp; hip_stream.cpp; hip_internal.hpp). A launch on a
 * captured stream runs nothing. It becomes a node with a copy of the arguments, and each launch of the graph starts that. A call
 * that is forbidden meanwhile fails, and the capture is lost: later launches fail too, as does hipStreamEndCapture().
 */
#include "mocks/hip/graph.h"

#include "gfx/gfx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
	struct node *next;
	hipFunction_t function;
	const struct gfx_kernel *kernel;
	dim3 grid, block;
	char args[]; /* where the kernel's metadata has them */
};

struct ihipGraph {
	struct node *first, **end;
};

struct hipGraphExec {
	struct ihipGraph graph;
};

static struct capture {
	struct capture *next;
	hipStream_t stream; /* hipStreamPerThread is one stream of all threads here */
	hipStreamCaptureMode mode;
	const void *thread; /* that has begun it */
	bool lost, over;
	struct ihipGraph *graph;
} *captures;

static _Thread_local hipStreamCaptureMode thread_mode;

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode)
{
	const hipStreamCaptureMode before = thread_mode;

	thread_mode = *mode;
	*mode = before;
	return hipSuccess;
}

/* clr hip_module.cpp, CHECK_STREAM_CAPTURE_SUPPORTED. */
void capture_must_be_relaxed(void)
{
	if (thread_mode == hipStreamCaptureModeRelaxed)
		return;
	fprintf(stderr, "mock: a call that would end a capture\n");
	abort();
}

/* ---- Nodes ---- */

static void add(struct ihipGraph *graph, const struct node *node, size_t size)
{
	struct node *copy = malloc(size);

	if (!copy)
		abort();
	memcpy(copy, node, size);
	copy->next = NULL;
	*graph->end = copy;
	graph->end = &copy->next;
}

/* What is freed is spoiled before, so that a use after it shows. */
static void drop_nodes(struct ihipGraph *graph)
{
	while (graph->first) {
		struct node *node = graph->first;

		graph->first = node->next;
		memset(node->args, 0xee, node->kernel->kernarg);
		free(node);
	}
}

static void drop_graph(struct ihipGraph *graph)
{
	drop_nodes(graph);
	free(graph);
}

/* ---- Captures ---- */

static struct capture *find(hipStream_t stream)
{
	struct capture *c = captures;

	while (c && c->stream != stream)
		c = c->next;
	return c;
}

static void forget(struct capture *c)
{
	struct capture **link = &captures;

	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
	free(c);
}

/* A lost capture stays with its stream until the next one begins, also after its end (clr, hipStreamEndCapture_common()). */
hipStreamCaptureStatus capture_status(hipStream_t stream)
{
	const struct capture *c = find(stream);

	if (!c)
		return hipStreamCaptureStatusNone;
	return c->lost ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
}

/* Those of this thread, and in the global mode the global ones of all threads. */
static bool lose_by_mode(void)
{
	struct capture *c;
	bool any = false;

	for (c = captures; c && thread_mode != hipStreamCaptureModeRelaxed; c = c->next) {
		const bool own = c->thread == &thread_mode && c->mode != hipStreamCaptureModeRelaxed;

		if (c->over || (!own && (thread_mode != hipStreamCaptureModeGlobal || c->mode != hipStreamCaptureModeGlobal)))
			continue;
		c->lost = any = true;
	}
	return any;
}

/* clr, Stream::StreamCaptureOngoing(): the stream's own capture is lost in any mode. */
bool capture_ongoing(hipStream_t stream)
{
	struct capture *c = find(stream);

	if (!c)
		return (uintptr_t)stream > 1 && lose_by_mode();
	c->lost = true;
	return true;
}

hipError_t capture_allows(void)
{
	return lose_by_mode() ? hipErrorStreamCaptureUnsupported : hipSuccess;
}

hipError_t capture_forbids(hipError_t error)
{
	hipError_t ret = hipSuccess;
	struct capture *c;

	for (c = captures; c; c = c->next) {
		if (c->over)
			continue;
		c->lost = true;
		ret = error;
	}
	return ret;
}

void capture_drop(hipStream_t stream)
{
	struct capture *c = find(stream);

	if (!c)
		return;
	if (!c->over)
		drop_graph(c->graph);
	forget(c);
}

/* clr hip_graph_internal.hpp, GraphKernelNode::copyParams(). */
hipError_t capture_launch(hipStream_t stream, hipFunction_t function, const struct gfx_kernel *kernel, dim3 grid, dim3 block, void **args)
{
	const size_t size = sizeof(struct node) + kernel->kernarg;
	struct node *node;
	unsigned i;

	if (find(stream)->lost)
		return hipErrorStreamCaptureInvalidated;
	node = calloc(1, size);
	if (!node)
		return hipErrorOutOfMemory;
	*node = (struct node){ NULL, function, kernel, grid, block };
	for (i = 0; i < kernel->args; i++)
		memcpy(node->args + kernel->arg[i].offset, args[i], kernel->arg[i].size);
	add(find(stream)->graph, node, size);
	free(node);
	return hipSuccess;
}

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode)
{
	struct capture *c;

	if ((uintptr_t)stream <= 1) /* the default stream */
		return hipErrorStreamCaptureUnsupported;
	if (capture_status(stream) == hipStreamCaptureStatusActive)
		return hipErrorIllegalState;
	capture_drop(stream);
	c = calloc(1, sizeof(*c));
	if (!c)
		return hipErrorOutOfMemory;
	*c = (struct capture){ captures, stream, mode, &thread_mode, false, false, calloc(1, sizeof(*c->graph)) };
	if (!c->graph)
		abort();
	c->graph->end = &c->graph->first;
	captures = c;
	return hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph)
{
	struct capture *c = find(stream);

	*graph = NULL;
	if (!c || c->over)
		return hipErrorIllegalState;
	if (c->mode != hipStreamCaptureModeRelaxed && c->thread != &thread_mode)
		return hipErrorStreamCaptureWrongThread;
	if (c->lost) {
		drop_graph(c->graph);
		c->over = true;
		return hipErrorStreamCaptureInvalidated;
	}
	*graph = c->graph;
	forget(c);
	return hipSuccess;
}

/* ---- Graphs ---- */

/* It has copies of the nodes, so the graph may be destroyed (clr, ihipGraphInstantiate(): clone()). */
hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, hipGraphNode_t *bad, char *log, size_t size)
{
	const struct node *node;

	(void)bad, (void)log, (void)size;
	if (!exec || !graph)
		return hipErrorInvalidValue;
	*exec = calloc(1, sizeof(**exec));
	if (!*exec)
		return hipErrorOutOfMemory;
	(*exec)->graph.end = &(*exec)->graph.first;
	for (node = graph->first; node; node = node->next)
		add(&(*exec)->graph, node, sizeof(*node) + node->kernel->kernarg);
	return hipSuccess;
}

hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream)
{
	hipError_t ret = exec ? hipSuccess : hipErrorInvalidValue;
	struct node *node;

	for (node = exec ? exec->graph.first : NULL; node && ret == hipSuccess; node = node->next) {
		void *args[GFX_ARGS];
		unsigned i;

		for (i = 0; i < node->kernel->args; i++)
			args[i] = node->args + node->kernel->arg[i].offset;
		ret = hipModuleLaunchKernel(node->function, node->grid.x, node->grid.y, node->grid.z, node->block.x, node->block.y,
					    node->block.z, 0, stream, args, NULL);
	}
	return ret;
}

hipError_t hipGraphExecDestroy(hipGraphExec_t exec)
{
	if (!exec)
		return hipErrorInvalidValue;
	drop_nodes(&exec->graph);
	free(exec);
	return hipSuccess;
}

hipError_t hipGraphDestroy(hipGraph_t graph)
{
	if (!graph)
		return hipErrorInvalidValue;
	drop_graph(graph);
	return hipSuccess;
}
