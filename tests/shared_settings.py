"""Settings that all tests share, applied on import."""

import os

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)  # the tests are many small fits, which two threads only slow down

# CI draws the same examples every time and prints how to repeat a failure; at home new ones are drawn.
# A fixture that chooses kernels stays as it is for all examples of a test.
calm = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
settings.register_profile("ci", derandomize=True, **calm)
settings.register_profile("home", **calm)
settings.load_profile("ci" if os.environ.get("CI") else "home")
