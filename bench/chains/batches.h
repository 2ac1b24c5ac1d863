/* SPDX-License-Identifier: MIT */
/*
 * Another baseline than a kernel that stays (waves.h): when all data of a batch of chains is there, a CPU thread starts a kernel
 * that does one step of each of them. The kernel is captured once as a CUDA graph, or launched. Batches have a stream each, so some
 * read while others are in a kernel. Chains say what they want next as to CPU threads of the other baseline, so that reads begin
 * before the kernel has ended. On a CPU the thread does the steps itself.
 */
#ifndef BENCH_CHAINS_BATCHES_H
#define BENCH_CHAINS_BATCHES_H

#include <functional>
#include <vector>

#ifdef __CUDACC__
typedef cudaStream_t batch_stream;
#else
typedef int batch_stream;
#endif

/* What the batches of one CPU thread wait for. */
struct pending {
	uint32_t size;
	std::vector<uint32_t> live, missing; /* chains of each batch that have not ended, and whose data is not there */

	void begin(uint32_t chains, uint32_t of)
	{
		size = of;
		live.assign(chains / size, size);
		missing = live;
	}

	/* Chain @s has its data, or has ended. Return whether a kernel can go on with its batch. */
	bool arrived(uint32_t s, bool ended)
	{
		uint32_t at = s / size;

		live[at] -= ended;
		if (--missing[at] || !live[at])
			return false;
		missing[at] = live[at];
		return true;
	}
};

/* The kernels of all batches. Each batch is started by one CPU thread. */
struct kernels {
	typedef std::function<void(uint32_t first, uint32_t count, batch_stream stream)> launcher;

	uint32_t size; /* chains of a batch */
	launcher launch;
	std::vector<batch_stream> streams;

#ifdef __CUDACC__
	std::vector<cudaGraphExec_t> graphs; /* empty: kernels are launched */

	kernels(uint32_t chains, uint32_t of, bool graph, launcher l) : size(of), launch(l)
	{
		for (uint32_t first = 0; first < chains; first += size) {
			cudaStream_t stream;

			check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
			streams.push_back(stream);
			if (graph)
				graphs.push_back(captured(first, stream));
		}
	}

	cudaGraphExec_t captured(uint32_t first, cudaStream_t stream)
	{
		cudaGraphExec_t exec;
		cudaGraph_t graph;

		check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a capture");
		launch(first, size, stream);
		check(cudaStreamEndCapture(stream, &graph), "a capture");
		check(cudaGraphInstantiate(&exec, graph, 0), "a graph");
		check(cudaGraphUpload(exec, stream), "a graph");
		check(cudaStreamSynchronize(stream), "a graph");
		check(cudaGraphDestroy(graph), "a graph");
		return exec;
	}

	void start(uint32_t batch)
	{
		if (graphs.empty())
			launch(batch * size, size, streams[batch]);
		else
			check(cudaGraphLaunch(graphs[batch], streams[batch]), "a graph");
	}

	~kernels()
	{
		for (cudaStream_t s : streams)
			check(cudaStreamSynchronize(s), "the kernels");
		for (cudaGraphExec_t g : graphs)
			check(cudaGraphExecDestroy(g), "a graph");
		for (cudaStream_t s : streams)
			check(cudaStreamDestroy(s), "a stream");
	}
#else
	kernels(uint32_t, uint32_t of, bool, launcher l) : size(of), launch(l) {}

	void start(uint32_t batch)
	{
		launch(batch * size, size, 0);
	}
#endif
};

#endif
