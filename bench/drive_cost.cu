/* SPDX-License-Identifier: MIT */
/*
 * bench/drive_cost: what an idle drive on a GPU costs other work of that GPU.
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Iexamples/cuda -o drive_cost bench/drive_cost.cu -Lbuild/release/lib -lgpunvme \
 *     -Xlinker -rpath=$PWD/build/release/lib
 *   drive_cost 'soft:vram:2G?on=cuda:0&queues=32' [GPU [SECONDS]]
 *
 * The work is a kernel that multiplies and adds in registers, a kernel that copies 1 GiB in memory of the GPU, and cudaMalloc() and
 * cudaFree() of 64 MiB. It is timed without the drive, with the drive and up to 32 queues open but idle, and after the drive was
 * closed. A line of JSON for each: least, median and most of TURNS calls. GPU: that of the work (0). With SECONDS the program then rests
 * that long, and prints what nvidia-smi says of that GPU in the middle of the rest.
 */
#include <algorithm>
#include <chrono>
#include <thread>

#include "session.h"

const char *const program = "drive_cost";

#define TURNS 31u
#define BLOCK 256u
#define ROUNDS 65536u
#define QUEUES 32u
#define COPIED ((size_t)1 << 30)
#define TAKEN ((size_t)64 << 20)

__global__ static void multiply(float *sink, float by)
{
	float a = by, b = by + 1, c = by + 2, d = by + 3;

	for (uint32_t i = 0; i < ROUNDS; i++)
		a = a * by + b, b = b * by + c, c = c * by + d, d = d * by + a;
	if (a + b + c + d == 1)
		*sink = a;
}

__global__ static void copy(uint4 *to, const uint4 *from)
{
	for (size_t i = blockIdx.x * BLOCK + threadIdx.x; i < COPIED / sizeof(*to); i += (size_t)gridDim.x * BLOCK)
		to[i] = from[i];
}

static double now_us()
{
	return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* The time of each call, us, in order. */
template <typename Call> static std::vector<double> times(Call call)
{
	std::vector<double> us;

	for (uint32_t i = 0; i <= TURNS; i++) { /* the first one does not count */
		const double begin = now_us();

		call();
		if (i)
			us.push_back(now_us() - begin);
	}
	std::sort(us.begin(), us.end());
	return us;
}

static void print(const char *name, const std::vector<double> &us)
{
	printf(", \"%s_us\": [%.1f, %.1f, %.1f]", name, us[0], us[us.size() / 2], us.back());
}

static void print_smi(unsigned gpu, unsigned seconds)
{
	float power = 0, clock = 0, use = 0;
	std::string command = "nvidia-smi --query-gpu=power.draw,clocks.sm,utilization.gpu --format=csv,noheader,nounits -i ";
	char address[32] = "";
	FILE *in;

	check(cudaDeviceGetPCIBusId(address, sizeof(address), (int)gpu), "cudaDeviceGetPCIBusId");
	command += address;
	std::this_thread::sleep_for(std::chrono::milliseconds(seconds * 500));
	in = popen(command.c_str(), "r");
	if (in && fscanf(in, "%f, %f, %f", &power, &clock, &use) == 3)
		printf(", \"watts\": %.1f, \"sm_mhz\": %.0f, \"busy_percent\": %.0f", power, clock, use);
	if (in)
		pclose(in);
	std::this_thread::sleep_for(std::chrono::milliseconds(seconds * 500));
}

struct work {
	unsigned gpu, seconds, blocks;
	float *sink;
	uint4 *from, *to;
	cudaStream_t stream;
};

/* Wait for the work's own stream only: a drive on the same GPU never ends. */
static void finish(const struct work &w)
{
	check(cudaGetLastError(), "a kernel");
	check(cudaStreamSynchronize(w.stream), "a kernel");
}

/* How long cudaMalloc() and cudaFree() take, in order. */
static void time_memory(std::vector<double> &taken, std::vector<double> &freed)
{
	for (uint32_t i = 0; i <= TURNS; i++) { /* the first one does not count */
		const double begin = now_us();
		double middle;
		void *p;

		check(cudaMalloc(&p, TAKEN), "cudaMalloc");
		middle = now_us();
		check(cudaFree(p), "cudaFree");
		if (i) {
			taken.push_back(middle - begin);
			freed.push_back(now_us() - middle);
		}
	}
	std::sort(taken.begin(), taken.end());
	std::sort(freed.begin(), freed.end());
}

static void measure(const struct work &w, const char *drive)
{
	std::vector<double> taken, freed;

	time_memory(taken, freed);
	printf("{\"figure\": \"drive_cost\", \"drive\": \"%s\", \"gpu\": %u", drive, w.gpu);
	print("multiply", times([&w] {
		multiply<<<w.blocks * 8, BLOCK, 0, w.stream>>>(w.sink, 0.5f);
		finish(w);
	}));
	print("copy", times([&w] {
		copy<<<w.blocks * 8, BLOCK, 0, w.stream>>>(w.to, w.from);
		finish(w);
	}));
	print("malloc", taken);
	print("free", freed);
	if (w.seconds)
		print_smi(w.gpu, w.seconds);
	printf("}\n");
	fflush(stdout);
}

static void measure_idle(const struct work &w, const char *uri)
{
	struct gpunvme_dev_info info = {};
	std::vector<gpunvme_queue *> queues;
	gpunvme_dev *dev;
	gpunvme_gpu *gpu;

	info.size = sizeof(info);
	check(gpunvme_gpu_open(("cuda:" + std::to_string(w.gpu)).c_str(), nullptr, &gpu));
	check(gpunvme_dev_open(uri, nullptr, &dev));
	check(gpunvme_dev_get_info(dev, &info));
	queues.resize(std::min(info.queues, QUEUES));
	for (gpunvme_queue *&queue : queues)
		check(gpunvme_queue_create(dev, gpu, nullptr, &queue));
	measure(w, "idle");
	for (gpunvme_queue *queue : queues)
		check(gpunvme_queue_destroy(queue));
	check(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
}

int main(int argc, char **argv)
{
	struct work w = {};
	cudaDeviceProp prop;

	if (argc < 2 || argc > 4)
		die("usage: drive_cost URI [GPU [SECONDS]]");
	w.gpu = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	w.seconds = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	check(cudaSetDevice((int)w.gpu), "cudaSetDevice");
	check(cudaGetDeviceProperties(&prop, (int)w.gpu), "cudaGetDeviceProperties");
	w.blocks = (unsigned)prop.multiProcessorCount;
	check(cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking), "a stream");
	check(cudaMalloc(&w.sink, sizeof(*w.sink)), "cudaMalloc");
	check(cudaMalloc(&w.from, COPIED), "cudaMalloc");
	check(cudaMalloc(&w.to, COPIED), "cudaMalloc");
	measure(w, "none");
	measure_idle(w, argv[1]);
	measure(w, "closed");
	return 0;
}
