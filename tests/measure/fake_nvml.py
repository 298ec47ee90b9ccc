"""A made-up `pynvml`, with one device and as little of its interface as is used."""

from types import SimpleNamespace

ERROR_NOT_SUPPORTED, ERROR_NOT_FOUND = 3, 6


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


class FakeNvml:
    """Answers as the vendor's bindings do.

    Args:
        uuid: What the device is called.
        bus: Its place.
        refuses: Names of functions that say 'not supported'.
    """

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_GPU_UTILIZATION_SAMPLES = 1

    def __init__(self, uuid="GPU-aa-bb", bus="00000000:65:00.0", refuses=()):
        self.uuid, self.bus, self.refuses = uuid, bus, set(refuses)
        self.samples = []
        self.reasons = 0
        self.pids = [1]
        self.open = 0

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "refuses"):

            def refuse(*arguments):
                raise NVMLError(ERROR_NOT_SUPPORTED)

            return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        if not self.open:
            raise NVMLError(1)
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != self.uuid:
            raise NVMLError(ERROR_NOT_FOUND)
        return "by uuid"

    def nvmlDeviceGetHandleByPciBusId(self, bus):
        if bus != self.bus:
            raise NVMLError(ERROR_NOT_FOUND)
        return "by bus"

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1500

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=40, memory=1)

    def nvmlDeviceGetSamples(self, handle, kind, since_us):
        new = [(time_us, value) for time_us, value in self.samples if time_us > since_us]
        if not new:
            raise NVMLError(ERROR_NOT_FOUND)
        return 1, [SimpleNamespace(timeStamp=t, sampleValue=SimpleNamespace(uiVal=v)) for t, v in new]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in self.pids]
