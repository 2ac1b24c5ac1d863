/* SPDX-License-Identifier: MIT */
/* Controllers on the bus and what a doctor says of one, where the caller is wrong or the machine has none. Nothing is bound. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#define ABSENT "fffe:ff:1f.7"

/* The list has an end, and what it names are addresses of this machine. */
static void test_list(void **state)
{
	struct gpunvme_pci_info info[64];
	struct gpunvme_pci_path path = { .size = sizeof(path) };
	uint32_t all = 0, count = 64, i;

	(void)state;
	assert_int_equal(gpunvme_pci_list(NULL, &all), 0);
	assert_int_equal(gpunvme_pci_list(info, &count), 0);
	assert_int_equal(count, all);
	for (i = 0; i < count && i < 64; i++)
		assert_int_equal(gpunvme_pci_get_path(info[i].address, info[i].address, &path), 0);
	assert_int_equal(gpunvme_pci_list(info, NULL), -EINVAL);
	count = 1;
	assert_int_equal(gpunvme_pci_list(NULL, &count), -EINVAL);
	assert_int_equal(gpunvme_pci_list_v(info, &count, sizeof(info[0]) - 1), -EINVAL);
}

static int doctor(const char *address)
{
	struct gpunvme_check check[4];
	unsigned count = 4;

	return gpunvme_doctor(address, check, &count);
}

static void test_addresses(void **state)
{
	static const char *const wrong[] = { "nonsense", "", "0000:-1:00.0", "0000: 1:00.0" };
	struct gpunvme_pci_path path = { .size = sizeof(path) };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(gpunvme_pci_bind(wrong[i], NULL), -EINVAL);
		assert_int_equal(gpunvme_pci_unbind(wrong[i]), -EINVAL);
		assert_int_equal(gpunvme_pci_get_path(wrong[i], ABSENT, &path), -EINVAL);
		assert_int_equal(doctor(wrong[i]), -EINVAL);
	}
	assert_int_equal(gpunvme_pci_bind(NULL, NULL), -EINVAL);
	assert_int_equal(gpunvme_pci_unbind(NULL), -EINVAL);
	assert_int_equal(gpunvme_pci_get_path(NULL, ABSENT, &path), -EINVAL);
	assert_int_equal(doctor(NULL), -EINVAL);
}

static void test_absent(void **state)
{
	(void)state;
	assert_int_equal(gpunvme_pci_bind(ABSENT, NULL), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), ABSENT));
	assert_int_equal(gpunvme_pci_unbind(ABSENT), -ENODEV);
	assert_int_equal(doctor(ABSENT), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), ABSENT));
}

/* Room for fewer checks than there are, for none, and with a stride that no version has. */
static void test_room(void **state)
{
	struct gpunvme_check check[4];
	uint32_t count = 0;

	(void)state;
	assert_int_equal(gpunvme_doctor("vfio-user:/nowhere", check, &count) < 0, 1);
	assert_int_equal(count, 2);
	count = 1;
	check[1].name[0] = 'x';
	assert_int_equal(gpunvme_doctor("vfio-user:/nowhere", check, &count) < 0, 1);
	assert_int_equal(count, 2);
	assert_string_equal(check[0].name, "open");
	assert_int_equal(check[1].name[0], 'x');
	assert_int_equal(gpunvme_doctor_v("vfio-user:/nowhere", check, &count, sizeof(check[0]) - 1), -EINVAL);
	assert_int_equal(gpunvme_doctor("vfio-user:/nowhere", NULL, &count), -EINVAL);
	assert_int_equal(gpunvme_doctor("vfio-user:/nowhere", check, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
