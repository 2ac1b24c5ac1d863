/* SPDX-License-Identifier: MIT */
#include <gpunvme/device_ahead_sources.h>
#include <gpunvme/device_sources.h>
#include <gpunvme/device_writable_sources.h>

#include "arrays.h"

/* One element, and the range from it on; size() is how many there are. */
template <typename T, typename A> static int take(A &array, uint64_t index, uint64_t n, T *value, T *to, uint64_t *size)
{
	*size = array.size();
	*value = array[index];
	if (array.error())
		return array.error();
	return array.range(index, n, to) == array.error() ? array.error() : -1;
}

/* One element, and the range behind it. */
template <typename A> static int change(A &&array, uint64_t index, uint64_t n, uint64_t value, const uint64_t *from)
{
	if (array.put(index, value))
		return array.error();
	return array.put_range(index + 1, n, from) == array.error() ? array.error() : -1;
}

int arrays_of_namespace(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
			uint64_t *to, uint64_t *size)
{
	gpunvme::array<uint64_t> array(dq, pages);

	return take(array, index, n, value, to, size);
}

int arrays_of_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint32_t *value,
		   uint32_t *to, uint64_t *size)
{
	gpunvme::file_array<uint32_t> array(dq, pages);

	return take(array, index, n, value, to, size);
}

int arrays_of_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
		     uint64_t *to, uint64_t *size)
{
	gpunvme::volume_array<uint64_t> array(v, pages);

	return take(array, index, n, value, to, size);
}

int arrays_ahead(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
		 uint64_t *to, uint64_t *size)
{
	gpunvme::ahead_array<uint64_t> array(dq, pages);

	return take(array, index, n, value, to, size);
}

int arrays_ahead_of_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
			 uint64_t *to, uint64_t *size)
{
	gpunvme::ahead_file_array<uint64_t> array(dq, pages);

	return take(array, index, n, value, to, size);
}

int arrays_ahead_of_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n,
			   uint64_t *value, uint64_t *to, uint64_t *size)
{
	gpunvme::ahead_volume_array<uint64_t> array(v, pages);

	return take(array, index, n, value, to, size);
}

int arrays_change(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
		  const uint64_t *from)
{
	return change(gpunvme::writable_array<uint64_t>(dq, pages), index, n, value, from);
}

int arrays_change_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
		       const uint64_t *from)
{
	return change(gpunvme::writable_file_array<uint64_t>(dq, pages), index, n, value, from);
}

int arrays_change_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
			 const uint64_t *from)
{
	return change(gpunvme::writable_volume_array<uint64_t>(v, pages), index, n, value, from);
}
