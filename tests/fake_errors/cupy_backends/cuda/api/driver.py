"""What cupy raises when a call of the CUDA driver fails."""


class CUDADriverError(RuntimeError):
    """Tells the number too."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__({719: "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"}[status])
