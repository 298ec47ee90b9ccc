"""An NVIDIA device as its vendor's bindings show it; these are made up."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from bottleneck.measure.nvml import Gpu, NoGpuError
from tests.measure.fake_nvml import FakeNvml

CUDA = torch.device("cuda:0")


@pytest.fixture
def install(monkeypatch):
    """Puts made-up bindings in the place of the vendor's, and gives torch a device with a name."""

    def put(nvml, **properties):
        given = {"uuid": "aa-bb", "pci_domain_id": 0, "pci_bus_id": 0x65, "pci_device_id": 0, **properties}
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**given))
        return nvml

    return put


def usage(wall_s=100.0, own_s=20.0):
    """With two clocks, which differ by 80 s."""
    return Gpu(CUDA, clock=lambda: own_s, wall_clock=lambda: wall_s)


def shares(watched):
    return [(each.time_s, each.window_s, each.share) for each in watched.busy_shares()]


def test_the_device_is_found_by_its_uuid_whatever_its_number_is(install):
    install(FakeNvml(uuid="GPU-aa-bb", bus="elsewhere"))
    assert usage()._handle == "by uuid"


def test_a_part_of_a_device_has_a_uuid_too(install):
    install(FakeNvml(uuid="MIG-aa-bb", bus="elsewhere"))
    assert usage()._handle == "by uuid"


def test_a_torch_that_tells_no_uuid_tells_the_place(install):
    install(FakeNvml(), uuid=None)
    assert usage()._handle == "by bus"


def test_what_is_read_at_a_moment(install):
    nvml = install(FakeNvml())
    nvml.reasons = 0x04 | 0x40
    watched = usage()
    assert watched.sm_clock_hz() == 1.5e9
    assert watched.max_sm_clock_hz == 1.98e9
    assert watched.throttled() == ("power", "heat")


def test_a_share_of_time_comes_with_the_time_it_is_about(install):
    # Guards: the driver's share is about the past, which may have been another experiment.
    nvml = install(FakeNvml(refuses={"nvmlDeviceGetUtilizationRates"}))
    watched = usage(wall_s=100.0, own_s=20.0)
    nvml.samples = [(99_000_000, 10), (99_500_000, 80), (99_900_000, 90)]
    assert shares(watched) == [
        (pytest.approx(19.5), pytest.approx(0.5), 0.8),
        (pytest.approx(19.9), pytest.approx(0.4), 0.9),
    ]
    assert shares(watched) == []  # nothing new
    nvml.samples.append((100_000_000, 100))
    assert shares(watched) == [(pytest.approx(20.0), pytest.approx(0.1), 1.0)]


def test_a_driver_that_has_no_sample_is_asked_for_the_share_of_the_last_second(install):
    nvml = install(FakeNvml())
    watched = usage()
    assert shares(watched) == [(20.0, 1.0, 0.4)]
    nvml.refuses = {"nvmlDeviceGetSamples"}
    assert shares(watched) == [(20.0, 1.0, 0.4)]


def test_what_the_driver_refuses_is_left_out_and_nothing_fails(install):
    names = [name for name in dir(FakeNvml) if name.startswith("nvmlDeviceGet") and "Handle" not in name]
    install(FakeNvml(refuses=names))
    watched = usage()
    assert watched.max_sm_clock_hz is watched.sm_clock_hz() is watched.throttled() is None
    assert watched.other_processes({1}) is None
    assert shares(watched) == []


def test_older_bindings_call_the_reasons_by_another_name(install):
    nvml = install(FakeNvml(refuses={"nvmlDeviceGetCurrentClocksEventReasons"}))
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x20
    assert usage().throttled() == ("heat",)


@pytest.mark.parametrize(
    ("pids", "others"),
    [([os.getpid()], 0), ([os.getpid(), 7, 99], 1), ([], 0), ([1], 0), ([1, 2], None)],
)
def test_processes_of_others_are_told_only_where_they_can_be_told_from_ours(install, pids, others):
    install(FakeNvml()).pids = pids
    assert usage().other_processes({os.getpid(), 7}) == others


def test_the_library_is_let_go_once_and_again_does_no_harm(install):
    nvml = install(FakeNvml())
    watched = usage()
    assert nvml.open == 1
    watched.close()
    watched.close()
    assert nvml.open == 0


def test_without_the_bindings_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoGpuError, match=r"pip install .*nvidia"):
        usage()


def test_a_driver_that_does_not_start_is_told(install):
    install(FakeNvml(refuses={"nvmlInit"}))
    with pytest.raises(NoGpuError, match="does not start"):
        usage()


def test_a_device_that_the_driver_does_not_know_is_told_and_nothing_stays_open(install):
    nvml = install(FakeNvml(uuid="GPU-other", bus="elsewhere"))
    with pytest.raises(NoGpuError, match="does not know it"):
        usage()
    assert nvml.open == 0


def test_a_torch_that_knows_no_such_device_is_told(install, monkeypatch):
    nvml = install(FakeNvml())

    def refuse(device):
        raise RuntimeError("no such device")

    monkeypatch.setattr(torch.cuda, "get_device_properties", refuse)
    with pytest.raises(NoGpuError, match="no such device"):
        usage()
    assert nvml.open == 0


def test_devices_of_other_makers_are_not_watched():
    with pytest.raises(NoGpuError, match="only that of NVIDIA"):
        Gpu(torch.device("mps"))
