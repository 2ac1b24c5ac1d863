# SPDX-License-Identifier: MIT
# Fills an array from a drive: fill_array.py [URI]
import sys

import gpunvme
import numpy

array = numpy.empty(1024, numpy.float32)
with gpunvme.Drive(sys.argv[1] if len(sys.argv) > 1 else "soft:disk.img") as drive:
    drive.read(array)
print(array[:4], array.sum())
