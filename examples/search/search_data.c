/* SPDX-License-Identifier: MIT */
/*
 * search_data FILE NODES [QUERIES [BYTES]]: makes a data set for the search (search.h), the same one each time. Points lie in
 * clusters of some 256. A node's neighbours are near ones of its own and of the nearest clusters, but not those that another
 * neighbour is nearer to, and some points anywhere. Exact results are found by brute force. All processors work.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../front/new_file.h"
#include "axes.h"
#include "search.h"

#define CLUSTER 256u
#define LATENT 12u /* dimensions in which clusters lie */
#define CLOSE 8u   /* clusters among which a node finds its neighbours */
#define NEAR 20u   /* of 32 neighbours so many are chosen. The others are those that chose this node */
#define FAR 4u	   /* and so many are anywhere */
#define BYTES AXES_DIMENSIONS
#define THREADS 16u

struct near {
	uint32_t far, node;
};

struct data {
	struct search_shape shape;
	uint32_t nodes, clusters, queries;
	unsigned char (*point)[BYTES];
	unsigned char (*code)[BYTES]; /* of a point */
	unsigned char (*centre)[BYTES];
	uint32_t (*close)[CLOSE];
	uint32_t (*next)[SEARCH_DEGREE]; /* the first of them */
	struct search_query *query;
	struct axes axes;
	float axis[LATENT][BYTES];
};

static uint64_t seed = 1;

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static uint64_t dice(void)
{
	return mix(seed += 0x9e3779b97f4a7c15ull);
}

/* ---- All processors ---- */

struct part {
	struct data *d;
	void (*work)(struct data *d, uint32_t i);
	uint32_t first, end;
	pthread_t thread;
	int failed;
};

static void *run_part(void *arg)
{
	const struct part *p = arg;

	for (uint32_t i = p->first; i < p->end; i++)
		p->work(p->d, i);
	return NULL;
}

/* work(d, i) for each i below @count, in any order. */
static void in_parallel(struct data *d, uint32_t count, void (*work)(struct data *d, uint32_t i))
{
	struct part part[THREADS];

	for (uint32_t t = 0; t < THREADS; t++) {
		part[t] = (struct part){ .d = d, .work = work, .first = (uint32_t)((uint64_t)count * t / THREADS),
					 .end = (uint32_t)((uint64_t)count * (t + 1) / THREADS) };
		part[t].failed = pthread_create(&part[t].thread, NULL, run_part, &part[t]);
	}
	for (uint32_t t = 0; t < THREADS; t++)
		if (part[t].failed)
			run_part(&part[t]);
		else
			pthread_join(part[t].thread, NULL);
}

/* ---- Points ---- */

/* About -2 to 2, bell-shaped. */
static float bell(void)
{
	uint64_t v = dice();

	return (float)((v & 0xffff) + (v >> 16 & 0xffff) + (v >> 32 & 0xffff) + (v >> 48)) / 65536.0f - 2.0f;
}

static uint32_t distance(const unsigned char *a, const unsigned char *b)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < BYTES; i++) {
		int d = a[i] - b[i];

		sum += (uint32_t)(d * d);
	}
	return sum;
}

static unsigned char byte_of(float v)
{
	return v < 0 ? 0 : v > 255 ? 255 : (unsigned char)v;
}

static void make_centre(struct data *d, unsigned char *centre)
{
	float place[LATENT];

	for (uint32_t l = 0; l < LATENT; l++)
		place[l] = bell();
	for (uint32_t i = 0; i < BYTES; i++) {
		float v = 128;

		for (uint32_t l = 0; l < LATENT; l++)
			v += place[l] * d->axis[l][i];
		centre[i] = byte_of(v);
	}
}

/* A point of the cluster, off its centre along the same axes and a little in each dimension. */
static void make_point(struct data *d, uint32_t cluster, unsigned char *point)
{
	float place[LATENT];

	for (uint32_t l = 0; l < LATENT; l++)
		place[l] = bell() * 0.6f;
	for (uint32_t i = 0; i < BYTES; i++) {
		float v = d->centre[cluster][i] + 4 * bell();

		for (uint32_t l = 0; l < LATENT; l++)
			v += place[l] * d->axis[l][i];
		point[i] = byte_of(v);
	}
}

/* Puts @n into the list of the @room nearest, which holds @*count. */
static void keep(struct near *list, uint32_t *count, uint32_t room, struct near n)
{
	uint32_t at = *count;

	if (at == room && (n.far > list[at - 1].far || (n.far == list[at - 1].far && n.node > list[at - 1].node)))
		return;
	if (at == room)
		at--;
	else
		++*count;
	for (; at && (list[at - 1].far > n.far || (list[at - 1].far == n.far && list[at - 1].node > n.node)); at--)
		list[at] = list[at - 1];
	list[at] = n;
}

/* ---- The graph ---- */

static void find_close(struct data *d, uint32_t c)
{
	struct near list[CLOSE];
	uint32_t count = 0;

	for (uint32_t i = 0; i < d->clusters; i++)
		keep(list, &count, CLOSE, (struct near){ distance(d->centre[c], d->centre[i]), i });
	for (uint32_t i = 0; i < CLOSE; i++)
		d->close[c][i] = i < count ? list[i].node : c;
}

static uint32_t links(const struct data *d, uint32_t node)
{
	uint32_t n = 0;

	while (n < d->shape.degree && d->next[node][n] != SEARCH_NOBODY)
		n++;
	return n;
}

static void link_to(struct data *d, uint32_t from, uint32_t to)
{
	uint32_t n = links(d, from);

	for (uint32_t i = 0; i < n; i++)
		if (d->next[from][i] == to)
			return;
	if (n < d->shape.degree && from != to)
		d->next[from][n] = to;
}

static uint32_t share(const struct data *d, uint32_t of_32)
{
	return of_32 * d->shape.degree / 32;
}

/* Of @list, the nearest first: those to which no other that was taken is much nearer. */
static void choose(struct data *d, uint32_t node, const struct near *list, uint32_t count)
{
	uint32_t taken = 0, near = share(d, NEAR), j;

	for (uint32_t i = 0; i < count && taken < near; i++) {
		for (j = 0; j < taken; j++)
			if (distance(d->point[d->next[node][j]], d->point[list[i].node]) * 1.2f < (float)list[i].far)
				break;
		if (j == taken)
			d->next[node][taken++] = list[i].node;
	}
	for (uint32_t i = 0; i < count && links(d, node) < near; i++)
		link_to(d, node, list[i].node);
}

/* Point i is of cluster i modulo their number. A cluster's nodes have their turn together, while its points are in the cache. */
static void find_neighbours(struct data *d, uint32_t turn)
{
	const uint32_t node = turn / CLUSTER + turn % CLUSTER * d->clusters, *close = d->close[turn / CLUSTER];
	struct near list[128];
	uint32_t count = 0;

	if (node >= d->nodes)
		return;
	for (uint32_t c = 0; c < CLOSE && (!c || close[c] != close[0]); c++)
		for (uint32_t i = close[c]; i < d->nodes; i += d->clusters)
			if (i != node)
				keep(list, &count, 128, (struct near){ distance(d->point[node], d->point[i]), i });
	choose(d, node, list, count);
	for (uint32_t i = 0; i < share(d, FAR); i++)
		link_to(d, node, (uint32_t)(mix((uint64_t)node * FAR + i + 1) % d->nodes));
}

static void make_graph(struct data *d)
{
	memset(d->next, 0xff, (size_t)d->nodes * sizeof(*d->next));
	in_parallel(d, d->clusters * CLUSTER, find_neighbours);
	for (uint32_t node = 0; node < d->nodes; node++)
		for (uint32_t i = 0; i < share(d, NEAR) && d->next[node][i] != SEARCH_NOBODY; i++)
			link_to(d, d->next[node][i], node);
}

/* ---- Codes ---- */

static void make_code(struct data *d, uint32_t node)
{
	axes_code(&d->axes, d->point[node], d->code[node]);
}

static void make_codes(struct data *d)
{
	axes_find(&d->axes, d->shape.words * 4, d->point, d->nodes);
	in_parallel(d, d->nodes, make_code);
}

/* ---- Queries ---- */

static void find_answer(struct data *d, uint32_t q)
{
	struct search_query *query = &d->query[q];
	struct near list[SEARCH_TOP];
	uint32_t count = 0;

	axes_code(&d->axes, (unsigned char *)query->vector, (unsigned char *)query->code);
	for (uint32_t n = 0; n < d->nodes; n++)
		keep(list, &count, SEARCH_TOP, (struct near){ distance((unsigned char *)query->vector, d->point[n]), n });
	for (uint32_t i = 0; i < SEARCH_TOP; i++)
		query->answer[i] = list[i].node;
}

static void make_queries(struct data *d)
{
	for (uint32_t q = 0; q < d->queries; q++)
		make_point(d, (uint32_t)(dice() % d->clusters), (unsigned char *)d->query[q].vector);
	in_parallel(d, d->queries, find_answer);
}

/* ---- The file ---- */

static int write_graph(const struct data *d, FILE *out)
{
	struct search_head head = { .magic = SEARCH_MAGIC, .nodes = d->nodes, .queries = d->queries, .bytes = d->shape.bytes,
				    .entries = d->clusters };
	const uint32_t degree = d->shape.degree;
	uint32_t node[SEARCH_NODE / 4];

	if (fwrite(&head, sizeof(head), 1, out) != 1)
		return -errno;
	for (uint32_t n = 0; n < d->nodes; n++) {
		uint32_t *code = node + SEARCH_VECTOR + degree;

		memset(node, 0, sizeof(node));
		node[0] = n;
		memcpy(node + 2, d->point[n], BYTES);
		memcpy(node + SEARCH_VECTOR, d->next[n], degree * 4);
		for (uint32_t i = 0; i < links(d, n); i++)
			for (uint32_t w = 0; w < d->shape.words; w++)
				memcpy(&code[w * degree + i], d->code[d->next[n][i]] + 4 * (size_t)w, 4);
		if (fwrite(node, d->shape.bytes, 1, out) != 1)
			return -errno;
	}
	return 0;
}

static int write_queries(const struct data *d, FILE *out)
{
	uint64_t bytes = (uint64_t)d->nodes * d->shape.bytes + (uint64_t)d->queries * sizeof(*d->query) +
			 (uint64_t)d->clusters * sizeof(*d->code);

	if (fwrite(d->query, sizeof(*d->query), d->queries, out) != d->queries)
		return -errno;
	if (fwrite(d->code, sizeof(*d->code), d->clusters, out) != d->clusters) /* as struct search_entry */
		return -errno;
	for (; bytes % SEARCH_NODE; bytes++) /* whole blocks, whatever their size */
		if (putc(0, out) == EOF)
			return -errno;
	return 0;
}

static int make(struct data *d, FILE *out)
{
	int ret;

	d->clusters = (d->nodes + CLUSTER - 1) / CLUSTER;
	d->point = calloc(d->nodes, sizeof(*d->point));
	d->code = calloc(d->nodes, sizeof(*d->code));
	d->centre = calloc(d->clusters, sizeof(*d->centre));
	d->close = calloc(d->clusters, sizeof(*d->close));
	d->next = calloc(d->nodes, sizeof(*d->next));
	d->query = calloc(d->queries, sizeof(*d->query));
	if (!d->point || !d->code || !d->centre || !d->close || !d->next || !d->query)
		return -ENOMEM;
	for (uint32_t i = 0; i < LATENT * BYTES; i++)
		d->axis[i / BYTES][i % BYTES] = 12 * bell();
	for (uint32_t c = 0; c < d->clusters; c++)
		make_centre(d, d->centre[c]);
	for (uint32_t n = 0; n < d->nodes; n++)
		make_point(d, n % d->clusters, d->point[n]);
	in_parallel(d, d->clusters, find_close);
	make_graph(d);
	make_codes(d);
	make_queries(d);
	ret = write_graph(d, out);
	return ret ? ret : write_queries(d, out);
}

static void forget(struct data *d)
{
	free(d->point);
	free(d->code);
	free(d->centre);
	free(d->close);
	free(d->next);
	free(d->query);
}

static bool has_shape(struct data *d, const char *bytes)
{
	static const struct search_shape known[] = SEARCH_SHAPES;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		d->shape = known[i];
		if (strtoul(bytes, NULL, 10) == known[i].bytes)
			return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	static struct data d;
	struct new_file file;
	int ret;

	d.nodes = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	d.queries = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1000;
	if (argc < 3 || argc > 5 || d.nodes < 2 * SEARCH_DEGREE || d.nodes > 1u << 30 || !d.queries ||
	    !has_shape(&d, argc > 4 ? argv[4] : "4096")) {
		fprintf(stderr, "usage: search_data FILE NODES [QUERIES [BYTES]], with at least 64 nodes of 512, 1024 or 4096 bytes\n");
		return 2;
	}
	ret = -new_file_open(&file, argv[1]);
	if (!ret)
		ret = -new_file_close(&file, -make(&d, file.out));
	forget(&d);
	if (ret)
		fprintf(stderr, "search_data: %s: %s\n", argv[1], strerror(-ret));
	else
		printf("%u nodes, %u queries\n", d.nodes, d.queries);
	return ret != 0;
}
