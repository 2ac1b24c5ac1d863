// SPDX-License-Identifier: GPL-2.0-only
/*
 * Video memory without a GPU: BAR 2 of an ivshmem device of QEMU, in DMA-bufs
 * that offer physical addresses. For the guest in which libgpunvme is tested,
 * and nothing else; scripts/vm-kernel builds it into the kernel.
 *
 * As with a GPU's driver a buffer is made of blocks that are nowhere next to
 * each other, is pinned while an importer has its addresses, and may be moved
 * only when it is not. The device is bound by driver_override. Buffers come
 * from /dev/vram-test, by the ioctl below, and can be mapped by the CPU, which
 * finds one page of nobody's everywhere once its buffer was revoked.
 * In the device's folder in sysfs lie
 *
 *     refuse    an errno that importers of addresses get from now on, or 0
 *     provider  1: importers get the PCI device, and so must find a path to it
 *     move      written: all buffers move, or EBUSY
 *     revoke    written: all buffers that there are lose their memory for good
 *     pinned    bytes whose addresses somebody has
 */

#include <linux/bitmap.h>
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#define VRAM_BAR 2
#define VRAM_BLOCK (4 * PAGE_SIZE)

struct vram_test_alloc {
	__u64 size;
	__s32 fd;
	__u32 reserved;
};

#define VRAM_TEST_ALLOC _IOWR('V', 0x7e, struct vram_test_alloc)

struct vram {
	struct kref kref;
	struct miscdevice misc;
	phys_addr_t base;
	void __iomem *cpu;
	unsigned long nr_blocks;
	unsigned long *taken;
	/* Protects the fields below, @taken and the placement of buffers */
	struct mutex lock;
	struct list_head buffers;
	bool gone;
	int refuse;
	struct pci_dev *provider;
	atomic_long_t pinned;
};

/* All but @node is protected by the reservation lock. */
struct vram_buffer {
	struct list_head node;
	struct vram *vram;
	struct dma_buf *dmabuf;
	struct page *dummy;
	unsigned long pins;
	bool revoked;
	unsigned long nr_blocks;
	unsigned long blocks[] __counted_by(nr_blocks);
};

static void vram_free(struct kref *kref)
{
	struct vram *vram = container_of(kref, struct vram, kref);

	bitmap_free(vram->taken);
	kfree(vram);
}

static void vram_put_blocks(struct vram *vram, const unsigned long *blocks,
			    unsigned long nr)
{
	while (nr--)
		__clear_bit(blocks[nr], vram->taken);
}

/* From the top downwards, so that no two of them can be merged */
static int vram_get_blocks(struct vram *vram, unsigned long *blocks,
			   unsigned long nr)
{
	unsigned long at = vram->nr_blocks;
	unsigned long i = 0;

	lockdep_assert_held(&vram->lock);

	while (i < nr && at--) {
		if (!__test_and_set_bit(at, vram->taken))
			blocks[i++] = at;
	}
	if (i == nr)
		return 0;
	vram_put_blocks(vram, blocks, i);
	return -ENOSPC;
}

static phys_addr_t vram_address(struct vram_buffer *buffer, unsigned long offset)
{
	return buffer->vram->base + offset % VRAM_BLOCK +
	       buffer->blocks[offset / VRAM_BLOCK] * VRAM_BLOCK;
}

static int vram_attach(struct dma_buf *dmabuf,
		       struct dma_buf_attachment *attach)
{
	return dma_buf_attach_is_phys(attach) ? 0 : -EOPNOTSUPP;
}

static int vram_pin(struct dma_buf_attachment *attach)
{
	struct vram_buffer *buffer = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);

	if (buffer->revoked)
		return -ENODEV;
	buffer->pins++;
	atomic_long_add(attach->dmabuf->size, &buffer->vram->pinned);
	return 0;
}

static void vram_unpin(struct dma_buf_attachment *attach)
{
	struct vram_buffer *buffer = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);

	WARN_ON(!buffer->pins--);
	atomic_long_sub(attach->dmabuf->size, &buffer->vram->pinned);
}

static struct dma_buf_phys *vram_get_phys(struct dma_buf_attachment *attach)
{
	struct vram_buffer *buffer = attach->dmabuf->priv;
	int refuse = READ_ONCE(buffer->vram->refuse);
	size_t left = attach->dmabuf->size;
	struct dma_buf_phys *phys;
	size_t i;

	dma_resv_assert_held(attach->dmabuf->resv);

	if (WARN_ON(!buffer->pins))
		return ERR_PTR(-EINVAL);
	if (refuse)
		return ERR_PTR(-refuse);

	phys = kvmalloc(struct_size(phys, ranges, buffer->nr_blocks),
			GFP_KERNEL_ACCOUNT);
	if (!phys)
		return ERR_PTR(-ENOMEM);
	phys->provider = READ_ONCE(buffer->vram->provider);
	phys->nr_ranges = buffer->nr_blocks;
	for (i = 0; i < phys->nr_ranges; i++) {
		phys->ranges[i].paddr = vram_address(buffer, i * VRAM_BLOCK);
		phys->ranges[i].len = min_t(size_t, left, VRAM_BLOCK);
		left -= phys->ranges[i].len;
	}
	return phys;
}

static struct sg_table *vram_map(struct dma_buf_attachment *attach,
				 enum dma_data_direction dir)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void vram_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
		       enum dma_data_direction dir)
{
}

static vm_fault_t vram_fault(struct vm_fault *vmf)
{
	struct vram_buffer *buffer = vmf->vma->vm_private_data;
	struct dma_buf *dmabuf = buffer->dmabuf;
	unsigned long offset = vmf->pgoff << PAGE_SHIFT;
	unsigned long pfn;
	vm_fault_t ret;

	if (offset >= dmabuf->size)
		return VM_FAULT_SIGBUS;
	dma_resv_lock(dmabuf->resv, NULL);
	pfn = buffer->revoked ? page_to_pfn(buffer->dummy) :
				PHYS_PFN(vram_address(buffer, offset));
	ret = vmf_insert_pfn(vmf->vma, vmf->address, pfn);
	dma_resv_unlock(dmabuf->resv);
	return ret;
}

static const struct vm_operations_struct vram_vm_ops = {
	.fault = vram_fault,
};

static int vram_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_ops = &vram_vm_ops;
	vma->vm_private_data = dmabuf->priv;
	return 0;
}

static void vram_release(struct dma_buf *dmabuf)
{
	struct vram_buffer *buffer = dmabuf->priv;
	struct vram *vram = buffer->vram;

	mutex_lock(&vram->lock);
	list_del(&buffer->node);
	vram_put_blocks(vram, buffer->blocks, buffer->nr_blocks);
	mutex_unlock(&vram->lock);
	__free_page(buffer->dummy);
	kfree(buffer);
	kref_put(&vram->kref, vram_free);
}

static const struct dma_buf_ops vram_dmabuf_ops = {
	.attach = vram_attach,
	.pin = vram_pin,
	.unpin = vram_unpin,
	.get_phys = vram_get_phys,
	.map_dma_buf = vram_map,
	.unmap_dma_buf = vram_unmap,
	.mmap = vram_mmap,
	.release = vram_release,
};

/* Whoever mapped it finds it elsewhere, or nowhere. */
static void vram_zap(struct dma_buf *dmabuf)
{
	dma_buf_invalidate_mappings(dmabuf);
	unmap_mapping_range(dmabuf->file->f_mapping, 0, 0, 1);
}

static int vram_revoke_one(struct vram_buffer *buffer)
{
	if (!buffer->revoked) {
		buffer->revoked = true;
		vram_zap(buffer->dmabuf);
	}
	return 0;
}

static int vram_move_one(struct vram_buffer *buffer)
{
	struct vram *vram = buffer->vram;
	unsigned long i;
	int ret;

	if (buffer->pins || buffer->revoked)
		return -EBUSY;

	unsigned long *blocks __free(kvfree) =
		kvmalloc_array(buffer->nr_blocks, sizeof(*blocks), GFP_KERNEL);
	if (!blocks)
		return -ENOMEM;
	ret = vram_get_blocks(vram, blocks, buffer->nr_blocks);
	if (ret)
		return ret;
	vram_zap(buffer->dmabuf);
	for (i = 0; i < buffer->nr_blocks; i++) {
		void *page = kmalloc(VRAM_BLOCK, GFP_KERNEL | __GFP_NOFAIL);

		memcpy_fromio(page, vram->cpu + buffer->blocks[i] * VRAM_BLOCK,
			      VRAM_BLOCK);
		memset_io(vram->cpu + buffer->blocks[i] * VRAM_BLOCK, 0xee,
			  VRAM_BLOCK);
		memcpy_toio(vram->cpu + blocks[i] * VRAM_BLOCK, page,
			    VRAM_BLOCK);
		kfree(page);
		swap(buffer->blocks[i], blocks[i]);
	}
	vram_put_blocks(vram, blocks, buffer->nr_blocks);
	return 0;
}

/* To every buffer that is not just being released, with its lock */
static int vram_for_each(struct vram *vram, int (*what)(struct vram_buffer *))
{
	struct vram_buffer *buffer, *next;
	int ret = 0;

	mutex_lock(&vram->lock);
	list_for_each_entry_safe(buffer, next, &vram->buffers, node) {
		if (!get_file_active(&buffer->dmabuf->file))
			continue;
		dma_resv_lock(buffer->dmabuf->resv, NULL);
		ret = what(buffer) ?: ret;
		dma_resv_unlock(buffer->dmabuf->resv);
		fput(buffer->dmabuf->file);
	}
	mutex_unlock(&vram->lock);
	return ret;
}

static struct dma_buf *vram_alloc(struct vram *vram, u64 size)
{
	unsigned long nr = DIV_ROUND_UP_ULL(size, VRAM_BLOCK);
	DEFINE_DMA_BUF_EXPORT_INFO(exp_info);
	struct vram_buffer *buffer;
	struct dma_buf *dmabuf;
	int ret = -ENODEV;

	buffer = kzalloc(struct_size(buffer, blocks, nr), GFP_KERNEL_ACCOUNT);
	if (!buffer)
		return ERR_PTR(-ENOMEM);
	buffer->nr_blocks = nr;
	buffer->vram = vram;
	buffer->dummy = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!buffer->dummy) {
		kfree(buffer);
		return ERR_PTR(-ENOMEM);
	}

	mutex_lock(&vram->lock);
	if (!vram->gone)
		ret = vram_get_blocks(vram, buffer->blocks, nr);
	if (ret)
		goto err_free;

	exp_info.ops = &vram_dmabuf_ops;
	exp_info.size = size;
	exp_info.flags = O_RDWR | O_CLOEXEC;
	exp_info.priv = buffer;
	dmabuf = dma_buf_export(&exp_info);
	if (IS_ERR(dmabuf)) {
		ret = PTR_ERR(dmabuf);
		goto err_blocks;
	}
	buffer->dmabuf = dmabuf;
	kref_get(&vram->kref);
	list_add(&buffer->node, &vram->buffers);
	mutex_unlock(&vram->lock);
	return dmabuf;

err_blocks:
	vram_put_blocks(vram, buffer->blocks, nr);
err_free:
	mutex_unlock(&vram->lock);
	__free_page(buffer->dummy);
	kfree(buffer);
	return ERR_PTR(ret);
}

static long vram_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct vram_test_alloc __user *user = (void __user *)arg;
	struct vram *vram = file->private_data;
	struct vram_test_alloc alloc;
	struct dma_buf *dmabuf;
	int fd;

	if (cmd != VRAM_TEST_ALLOC)
		return -ENOTTY;
	if (copy_from_user(&alloc, user, sizeof(alloc)))
		return -EFAULT;
	if (!alloc.size || !PAGE_ALIGNED(alloc.size) || alloc.reserved ||
	    alloc.size > vram->nr_blocks * VRAM_BLOCK)
		return -EINVAL;
	dmabuf = vram_alloc(vram, alloc.size);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0) {
		dma_buf_put(dmabuf);
		return fd;
	}
	return put_user(fd, &user->fd);
}

static int vram_open(struct inode *inode, struct file *file)
{
	struct vram *vram = container_of(file->private_data, struct vram, misc);

	kref_get(&vram->kref);
	file->private_data = vram;
	return 0;
}

static int vram_close(struct inode *inode, struct file *file)
{
	struct vram *vram = file->private_data;

	kref_put(&vram->kref, vram_free);
	return 0;
}

static const struct file_operations vram_fops = {
	.owner = THIS_MODULE,
	.open = vram_open,
	.release = vram_close,
	.unlocked_ioctl = vram_ioctl,
};

static ssize_t refuse_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	struct vram *vram = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%d\n", READ_ONCE(vram->refuse));
}

static ssize_t refuse_store(struct device *dev, struct device_attribute *attr,
			    const char *buf, size_t count)
{
	struct vram *vram = dev_get_drvdata(dev);
	unsigned int err;
	int ret = kstrtouint(buf, 0, &err);

	if (ret || err > MAX_ERRNO)
		return ret ?: -ERANGE;
	WRITE_ONCE(vram->refuse, err);
	return count;
}
static DEVICE_ATTR_RW(refuse);

static ssize_t provider_store(struct device *dev, struct device_attribute *attr,
			      const char *buf, size_t count)
{
	struct vram *vram = dev_get_drvdata(dev);
	bool named;
	int ret = kstrtobool(buf, &named);

	if (ret)
		return ret;
	WRITE_ONCE(vram->provider, named ? to_pci_dev(dev) : NULL);
	return count;
}
static DEVICE_ATTR_WO(provider);

static ssize_t move_store(struct device *dev, struct device_attribute *attr,
			  const char *buf, size_t count)
{
	return vram_for_each(dev_get_drvdata(dev), vram_move_one) ?: count;
}
static DEVICE_ATTR_WO(move);

static ssize_t revoke_store(struct device *dev, struct device_attribute *attr,
			    const char *buf, size_t count)
{
	return vram_for_each(dev_get_drvdata(dev), vram_revoke_one) ?: count;
}
static DEVICE_ATTR_WO(revoke);

static ssize_t pinned_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	struct vram *vram = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%ld\n", atomic_long_read(&vram->pinned));
}
static DEVICE_ATTR_RO(pinned);

static struct attribute *vram_attrs[] = {
	&dev_attr_refuse.attr,
	&dev_attr_provider.attr,
	&dev_attr_move.attr,
	&dev_attr_revoke.attr,
	&dev_attr_pinned.attr,
	NULL
};
ATTRIBUTE_GROUPS(vram);

static int vram_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vram *vram;
	int ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	vram = kzalloc_obj(*vram);
	if (!vram)
		return -ENOMEM;
	kref_init(&vram->kref);
	mutex_init(&vram->lock);
	INIT_LIST_HEAD(&vram->buffers);
	vram->base = pci_resource_start(pdev, VRAM_BAR);
	vram->nr_blocks = pci_resource_len(pdev, VRAM_BAR) / VRAM_BLOCK;
	vram->cpu = pcim_iomap_region(pdev, VRAM_BAR, "vram-test");
	if (IS_ERR(vram->cpu)) {
		ret = PTR_ERR(vram->cpu);
		goto err_put;
	}
	ret = -ENOMEM;
	vram->taken = bitmap_zalloc(vram->nr_blocks, GFP_KERNEL);
	if (!vram->taken)
		goto err_put;
	vram->misc.name = "vram-test";
	vram->misc.minor = MISC_DYNAMIC_MINOR;
	vram->misc.fops = &vram_fops;
	ret = misc_register(&vram->misc);
	if (ret)
		goto err_put;
	pci_set_drvdata(pdev, vram);
	return 0;

err_put:
	kref_put(&vram->kref, vram_free);
	return ret;
}

/* The addresses may soon belong to another device. */
static void vram_remove(struct pci_dev *pdev)
{
	struct vram *vram = pci_get_drvdata(pdev);

	misc_deregister(&vram->misc);
	mutex_lock(&vram->lock);
	vram->gone = true;
	mutex_unlock(&vram->lock);
	vram_for_each(vram, vram_revoke_one);
	kref_put(&vram->kref, vram_free);
}

/* By driver_override alone */
static const struct pci_device_id vram_ids[] = { {} };

static struct pci_driver vram_driver = {
	.name = "vram-test",
	.id_table = vram_ids,
	.probe = vram_probe,
	.remove = vram_remove,
	.dev_groups = vram_groups,
};
module_pci_driver(vram_driver);

MODULE_DESCRIPTION("Video memory without a GPU, for tests of libgpunvme");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("DMA_BUF");
