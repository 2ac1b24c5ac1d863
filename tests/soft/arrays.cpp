/* SPDX-License-Identifier: MIT */
#include <gpunvme/device.h>

#include "arrays.h"

/* One element, and the range from it on; size() is how many there are. */
template <typename T, typename A> static int take(A &array, uint64_t index, uint64_t n, T *value, T *to, uint64_t *size)
{
	*size = array.size();
	*value = array[index];
	if (array.error())
		return array.error();
	return array.load_range(index, n, to) == array.error() ? array.error() : -1;
}

/* One element, and the range behind it. */
template <typename A> static int change(A &&array, uint64_t index, uint64_t n, uint64_t value, const uint64_t *from)
{
	if (array.store(index, value))
		return array.error();
	return array.store_range(index + 1, n, from) == array.error() ? array.error() : -1;
}

int arrays_of_namespace(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
			uint64_t *to, uint64_t *size)
{
	gpunvme::array<uint64_t> array({ dq, pages });

	return take(array, index, n, value, to, size);
}

int arrays_of_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint32_t *value,
		   uint32_t *to, uint64_t *size)
{
	gpunvme::array<uint32_t, gpunvme_cached_file> array({ dq, pages });

	return take(array, index, n, value, to, size);
}

int arrays_of_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
		     uint64_t *to, uint64_t *size)
{
	gpunvme::array<uint64_t, gpunvme_cached_volume> array({ v, pages });

	return take(array, index, n, value, to, size);
}

int arrays_prefetched(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
		 uint64_t *to, uint64_t *size)
{
	gpunvme::array<uint64_t, gpunvme_prefetch_queue> array({ dq, pages });

	return take(array, index, n, value, to, size);
}

int arrays_prefetched_of_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
			 uint64_t *to, uint64_t *size)
{
	gpunvme::array<uint64_t, gpunvme_prefetch_file> array({ dq, pages });

	return take(array, index, n, value, to, size);
}

int arrays_prefetched_of_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n,
			   uint64_t *value, uint64_t *to, uint64_t *size)
{
	gpunvme::array<uint64_t, gpunvme_prefetch_volume> array({ v, pages });

	return take(array, index, n, value, to, size);
}

int arrays_change(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
		  const uint64_t *from)
{
	return change(gpunvme::array<uint64_t, gpunvme_writable_queue>({ dq, pages }), index, n, value, from);
}

int arrays_change_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
		       const uint64_t *from)
{
	return change(gpunvme::array<uint64_t, gpunvme_writable_file>({ dq, pages }), index, n, value, from);
}

int arrays_change_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
			 const uint64_t *from)
{
	return change(gpunvme::array<uint64_t, gpunvme_writable_volume>({ v, pages }), index, n, value, from);
}
