/* SPDX-License-Identifier: MIT */
/*
 * fio's external engine: each job is a CPU thread that submits to a queue of its own and polls. docs/guide.md has its use.
 *
 * fio asks for the size of a drive before it starts jobs, which are processes, or threads with --thread. A controller has one
 * owner, so jobs that share a controller are threads.
 */
#include <fio.h>
#include <optgroup.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#define DEPTH_MAX 65536u

/* A controller, for all jobs of this process that name it. */
struct drive {
	struct drive *next;
	char *uri;
	unsigned jobs;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
};

struct job {
	struct drive *drive;
	struct gpunvme_queue *queue;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_req *req; /* by io_u->index */
	struct io_u **flight;	 /* submitted, not yet seen to be over */
	struct io_u **over;	 /* what the last getevents() has found */
	unsigned flights;
};

struct options {
	void *pad; /* fio takes no option at offset 0 */
	unsigned yes;
};

static struct fio_option options[] = {
	{
		.name = "yes",
		.lname = "Write to a drive",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct options, yes),
		.help = "Do write to a target that is not an image file",
		.def = "0",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct drive *drives;

/* fio prints its own line of the job after this one: with the same text, cut off at its length. */
static int refuse(struct thread_data *td, int error, const char *text)
{
	log_err("gpunvme: %s\n", text);
	td_vmsg(td, error, text, "gpunvme");
	return 1;
}

static int say(struct thread_data *td, int ret)
{
	const char *text = gpunvme_errmsg();

	return refuse(td, ret < 0 ? -ret : EIO, *text ? text : gpunvme_strerror(ret));
}

static void drive_put(struct drive *d)
{
	struct drive **at;

	pthread_mutex_lock(&lock);
	if (!--d->jobs) {
		for (at = &drives; *at != d;)
			at = &(*at)->next;
		*at = d->next;
		gpunvme_dev_close(d->dev);
		gpunvme_gpu_close(d->gpu);
		free(d->uri);
		free(d);
	}
	pthread_mutex_unlock(&lock);
}

static int drive_open(const char *uri, struct drive **drive)
{
	struct drive *d = calloc(1, sizeof(*d));
	int ret = -ENOMEM;

	if (!d || !(d->uri = strdup(uri)))
		goto free_drive;
	ret = gpunvme_dev_open(uri, NULL, &d->dev);
	if (ret)
		goto free_drive;
	ret = gpunvme_gpu_open("cpu", NULL, &d->gpu);
	if (ret)
		goto close_dev;
	d->next = drives;
	drives = *drive = d;
	return 0;
close_dev:
	gpunvme_dev_close(d->dev);
free_drive:
	free(d ? d->uri : NULL);
	free(d);
	return ret;
}

static int drive_get(const char *uri, struct drive **drive)
{
	struct drive *d;
	int ret = 0;

	pthread_mutex_lock(&lock);
	for (d = drives; d && strcmp(d->uri, uri) != 0;)
		d = d->next;
	if (!d)
		ret = drive_open(uri, &d);
	if (!ret) {
		d->jobs++;
		*drive = d;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

static int get_file_size(struct thread_data *td, struct fio_file *f)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct drive *d;
	int ret;

	if (fio_file_size_known(f))
		return 0;
	if (td->o.nr_files != 1)
		return refuse(td, EINVAL, "a job has one drive. In --filename each ':' of its URI is written '\\:'");
	ret = drive_get(f->file_name, &d);
	if (ret)
		return say(td, ret == -ENOENT ? -ENODEV : ret); /* fio makes files that are not there */
	ret = gpunvme_ns_get_info(d->dev, 0, &ns);
	drive_put(d);
	if (ret)
		return say(td, ret);
	f->filetype = FIO_TYPE_BLOCK;
	f->real_file_size = ns.nblocks * ns.lba_size;
	fio_file_set_size_known(f);
	return 0;
}

/* As the programs of this project ask, by the library. */
static int may_write(struct thread_data *td, struct drive *d)
{
	const struct options *o = td->eo;
	int ret = gpunvme_ns_may_overwrite(d->dev, 0);

	if (!ret || (ret == -EPERM && o->yes))
		return 0;
	if (ret != -EPERM)
		return say(td, ret);
	log_err("gpunvme: %s\n", gpunvme_errmsg());
	return refuse(td, EPERM, "add --yes=1 if that is the drive you mean");
}

static int queue_open(struct thread_data *td, struct job *j)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	int ret;

	if (td->o.iodepth >= DEPTH_MAX / 2)
		return refuse(td, EINVAL, "the queue is too deep: use a lower --iodepth");
	for (opts.depth = 2; opts.depth <= td->o.iodepth;) /* a ring is full with one entry free */
		opts.depth *= 2;
	view.flags = td_write(td) ? GPUNVME_VIEW_WRITE : 0;
	ret = gpunvme_queue_create(j->drive->dev, j->drive->gpu, &opts, &j->queue);
	if (!ret)
		ret = gpunvme_queue_view(j->queue, &view, &j->dq);
	if (ret)
		return say(td, ret);
	if (td_min_bs(td) % (1ull << j->dq.lba_shift))
		return refuse(td, EINVAL, "--bs is not a multiple of the drive's block size");
	return 0;
}

static void cleanup(struct thread_data *td)
{
	struct job *j = td->io_ops_data;

	if (!j)
		return;
	gpunvme_queue_destroy(j->queue);
	if (j->drive)
		drive_put(j->drive);
	free(j->req);
	free(j->flight);
	free(j->over);
	free(j);
	td->io_ops_data = NULL;
}

static int init(struct thread_data *td)
{
	struct job *j = calloc(1, sizeof(*j));
	int ret;

	td->io_ops_data = j;
	if (!j)
		return refuse(td, ENOMEM, "out of memory");
	ret = drive_get(td->files[0]->file_name, &j->drive);
	if (ret == -EBUSY)
		log_err("gpunvme: jobs share a controller with --thread\n");
	if (ret)
		return say(td, ret);
	if (td_write(td) && may_write(td, j->drive))
		return 1;
	j->req = calloc(td->o.iodepth, sizeof(*j->req));
	j->flight = calloc(td->o.iodepth, sizeof(struct io_u *));
	j->over = calloc(td->o.iodepth, sizeof(struct io_u *));
	if (!j->req || !j->flight || !j->over)
		return refuse(td, ENOMEM, "out of memory");
	return queue_open(td, j);
}

static int iomem_alloc(struct thread_data *td, size_t len)
{
	struct job *j = td->io_ops_data;
	int ret = gpunvme_mem_alloc(j->drive->gpu, j->queue, len, NULL, &j->mem);

	if (!ret)
		ret = gpunvme_mem_map(j->mem, j->drive->dev);
	if (!ret)
		ret = gpunvme_mem_dbuf(j->mem, j->drive->dev, &j->dbuf);
	if (ret)
		return say(td, ret);
	td->orig_buffer = gpunvme_mem_ptr(j->mem);
	return 0;
}

static void iomem_free(struct thread_data *td)
{
	struct job *j = td->io_ops_data;

	if (!j)
		return;
	gpunvme_queue_destroy(j->queue); /* nothing moves any more */
	j->queue = NULL;
	gpunvme_mem_free(j->mem);
}

static int submit(struct job *j, struct io_u *u, struct gpunvme_req *req)
{
	uint64_t at = (uint64_t)(uintptr_t)u->xfer_buf - j->dbuf.base;

	if (u->ddir == DDIR_READ)
		return gpunvme_submit_read(&j->dq, &j->dbuf, at, u->offset, u->xfer_buflen, req);
	if (u->ddir == DDIR_WRITE)
		return gpunvme_submit_write(&j->dq, &j->dbuf, at, u->offset, u->xfer_buflen, 0, req);
	return ddir_sync(u->ddir) ? gpunvme_submit_flush(&j->dq, req) : -GPUNVME_EOPNOTSUPP;
}

/* Print the error message: fio knows errno only. */
static void end(struct io_u *u, int ret)
{
	if (ret == -GPUNVME_EMSGSIZE)
		log_err("gpunvme: %llu bytes at once are more than a command of this drive carries: use a smaller --bs\n", u->xfer_buflen);
	else if (ret == -GPUNVME_EINVAL)
		log_err("gpunvme: %s of %llu bytes at %llu is not of whole blocks of the drive: --offset, --bs and --size are to be "
			"multiples of its block size, and buffers (--mem_align) of 4\n",
			io_ddir_name(u->ddir), u->xfer_buflen, u->offset);
	else if (ret)
		log_err("gpunvme: %s of %llu bytes at %llu: %s\n", io_ddir_name(u->ddir), u->xfer_buflen, u->offset, gpunvme_strerror(ret));
	u->error = ret < 0 ? (unsigned)-ret : ret ? EIO : 0;
	u->resid = ret ? u->xfer_buflen : 0;
}

static enum fio_q_status queue(struct thread_data *td, struct io_u *u)
{
	struct job *j = td->io_ops_data;
	int ret;

	fio_ro_check(td, u);
	ret = submit(j, u, &j->req[u->index]);
	if (ret == -GPUNVME_EAGAIN)
		return FIO_Q_BUSY;
	if (ret) {
		end(u, ret);
		td_verror(td, (int)u->error, "gpunvme");
		return FIO_Q_COMPLETED;
	}
	j->flight[j->flights++] = u;
	return FIO_Q_QUEUED;
}

/* Looks once at each command in flight, until `max` are found: fio asks for one at a time. */
static unsigned look(struct job *j, unsigned found, unsigned max)
{
	unsigned i, left = 0;
	int ret;

	for (i = 0; i < j->flights && found < max; i++) {
		ret = gpunvme_poll(&j->dq, &j->req[j->flight[i]->index]);
		if (ret == -GPUNVME_EAGAIN) {
			j->flight[left++] = j->flight[i];
			continue;
		}
		end(j->flight[i], ret);
		j->over[found++] = j->flight[i];
	}
	memmove(&j->flight[left], &j->flight[i], (j->flights - i) * sizeof(struct io_u *));
	j->flights -= i - left;
	return found;
}

/* Ends: the library bounds how long a command may take. */
static int getevents(struct thread_data *td, unsigned min, unsigned max, const struct timespec *limit)
{
	struct job *j = td->io_ops_data;
	uint64_t until = limit ? (uint64_t)limit->tv_sec * 1000000000u + (uint64_t)limit->tv_nsec : UINT64_MAX;
	struct timespec start;
	unsigned found = 0;

	if (limit)
		fio_gettime(&start, NULL);
	do
		found = look(j, found, max);
	while (found < min && (!limit || ntime_since_now(&start) < until));
	return (int)found;
}

static struct io_u *event(struct thread_data *td, int i)
{
	struct job *j = td->io_ops_data;

	return j->over[i];
}

static int open_file(struct thread_data *td, struct fio_file *f)
{
	(void)td;
	(void)f;
	return 0;
}

struct ioengine_ops ioengine;
__attribute__((visibility("default"))) struct ioengine_ops ioengine = {
	.name = "gpunvme",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_RAWIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_DISKLESSIO | FIO_MEMALIGN | FIO_NO_OFFLOAD,
	.get_file_size = get_file_size,
	.init = init,
	.cleanup = cleanup,
	.iomem_alloc = iomem_alloc,
	.iomem_free = iomem_free,
	.open_file = open_file,
	.close_file = open_file,
	.queue = queue,
	.getevents = getevents,
	.event = event,
	.options = options,
	.option_struct_size = sizeof(struct options),
};
