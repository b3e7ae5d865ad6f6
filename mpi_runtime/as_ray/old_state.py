"""`ray.experimental.state`: the earlier place of `ray.util.state`. Its import warns, as Ray's."""

import warnings

warnings.warn("ray.experimental.state has moved: import ray.util.state", DeprecationWarning, stacklevel=2)
