"""What cupy raises when a call of the CUDA runtime fails."""

TEXTS = {
    2: "cudaErrorMemoryAllocation: out of memory",
    46: "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable",
    100: "cudaErrorNoDevice: no CUDA-capable device is detected",
    214: "cudaErrorECCUncorrectable: uncorrectable ECC error encountered",
    400: "cudaErrorInvalidResourceHandle: invalid resource handle",
    700: "cudaErrorIllegalAddress: an illegal memory access was encountered",
    999: "cudaErrorUnknown: unknown error",
}


class CUDARuntimeError(RuntimeError):
    """Tells the number too."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(TEXTS[status])

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return (type(self), (self.status,))
