"""torchvision: datasets wrapped for the transforms of version 2, and what their transforms are composed of."""

import pytest
import torch
from PIL import Image
from torchvision import datasets, transforms
from torchvision.transforms import v2

from bottleneck.job import recipes
from bottleneck.job.cuts import find_sites
from bottleneck.job.inspect import resolve, write_path
from tests.frameworks.planted import check_cost, slow_down, slowly, write_photographs

pytestmark = pytest.mark.integration


_BOX = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"


@pytest.fixture
def detection(tmp_path):
    """A folder as VOCDetection reads it: photographs with one box each."""
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / name).mkdir(parents=True)
    for number in range(24):
        Image.new("RGB", (16, 16)).save(root / "JPEGImages" / f"{number}.jpg")
        note = f"<annotation><object><name>cat</name>{_BOX}</object></annotation>"
        (root / "Annotations" / f"{number}.xml").write_text(note)
    (root / "ImageSets" / "Main" / "train.txt").write_text("\n".join(map(str, range(24))))
    return str(tmp_path)


def slow_pair(image, target):
    slow_down()
    return v2.functional.to_image(image).float(), target


def pictures_only(samples):
    return torch.stack([image for image, _ in samples])


def quick():
    return transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])


def test_the_joint_transform_of_a_wrapped_dataset_is_cut_on_the_wrapper(detection):
    dataset = datasets.VOCDetection(detection, image_set="train", transforms=slow_pair)
    dataset = datasets.wrap_dataset_for_transforms_v2(dataset)
    stages = {site.name: site.stage for site in find_sites(dataset)}
    assert stages["transforms"] == "augment"
    assert stages["_wrapper"] == "load"
    check_cost(dataset, "augment", collate_fn=pictures_only)


def test_a_slow_transform_of_an_image_folder_is_augmentation(tmp_path):
    slow = transforms.Compose([transforms.Lambda(slowly), *quick().transforms])
    check_cost(datasets.ImageFolder(str(write_photographs(tmp_path)), slow), "augment")


def test_a_slow_loader_of_an_image_folder_is_loading(tmp_path):
    def load(path):
        slow_down()
        return datasets.folder.default_loader(path)

    check_cost(datasets.ImageFolder(str(write_photographs(tmp_path)), quick(), loader=load), "load")


@pytest.mark.parametrize("version", [transforms, v2])
def test_the_members_of_composed_transforms_are_known(version):
    parts = [version.RandomHorizontalFlip(), version.ColorJitter()]
    for composed in (
        version.Compose(parts),
        version.RandomApply(parts),
        version.RandomApply(torch.nn.ModuleList(parts)),
        version.RandomChoice(parts),
        version.RandomOrder(parts),
    ):
        members = recipes.members(composed)
        assert [write_path(path) for path in members] == ["transforms[0]", "transforms[1]"]
        assert [resolve(composed, path) for path in members] == parts
    assert not recipes.members(parts[0])


def test_the_members_of_a_sequential_are_known():
    composed = torch.nn.Sequential(v2.RandomHorizontalFlip(), v2.Grayscale())
    assert [resolve(composed, path) for path in recipes.members(composed)] == list(composed)


def test_both_halves_of_the_transforms_of_a_dataset_are_known():
    dataset = datasets.FakeData(transform=quick(), target_transform=abs)
    assert [write_path(path) for path in recipes.members(dataset.transforms)] == ["transform", "target_transform"]
