/* A stand-in for libcuda.so.1: one device with a context, and answers that a test chooses. Only what gpu/cuda_context.py asks. */
static int start_error, context_error, is_active, retained, pushed;

void fake_set(int start, int context, int active) { start_error = start; context_error = context; is_active = active; }
int fake_kept(void) { return retained + pushed; }

int cuInit(unsigned flags) { return start_error; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = is_active; return device == 40 ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &retained; retained++; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { retained--; return 0; }
int cuCtxPushCurrent_v2(void *context) { pushed++; return context == &retained ? 0 : 201; }
int cuCtxPopCurrent_v2(void **context) { pushed--; return 0; }
int cuCtxSynchronize(void) { return context_error; }
