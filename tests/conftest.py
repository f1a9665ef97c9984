"""One thread for torch: the tests are many small fits, which two threads only slow down."""

import torch

torch.set_num_threads(1)
