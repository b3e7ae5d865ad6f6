"""What torch raises. For most errors of CUDA it has had no class of its own until 2.8."""


class OutOfMemoryError(RuntimeError):
    """Also known as `torch.cuda.OutOfMemoryError`."""


class AcceleratorError(RuntimeError):
    """Of torch 2.8 and later."""
