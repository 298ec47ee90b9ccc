"""What one batch holds, as the reports tell it."""

from bottleneck.reports import evidence as payload
from tests.support.results_factory import make_payload, make_result


def test_each_tensor_has_its_shape_its_bytes_and_what_could_be_saved():
    [section] = payload.payload(make_result())
    images, labels = section.blocks[0].rows

    assert images[:4] == ("batch[0]", "16x3x224x224", "float32", "9.19 MiB")
    assert images[4].startswith("float32 with 256 different values; saves 6.89 MiB: send uint8")
    assert labels[4] == ""


def test_objects_and_tensors_beyond_those_listed_are_counted():
    more = {**make_payload(), "objects": 3, "bytes": 2 * make_payload()["bytes"]}

    told = payload.summary(make_result(evidence={"payload": more}))

    assert told.startswith("One batch holds more than 2 tensors and 3 objects that are none, 18.4 MiB.")
