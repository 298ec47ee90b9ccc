"""Cases of transforms: which one, in which order, on which type, and where."""

from dataclasses import replace

from tests.analysis.rule_case import RuleCase, held_by, transform, with_stage

_BLUR = transform("transform.transforms[0]", "GaussianBlur", 0.7, "500x375 RGB")
_CROP = transform("transform.transforms[1]", "RandomResizedCrop", 0.2)
_OWN_BLUR = transform("transform.transforms[0]", "OwnBlur", 0.24, "500x375 RGB")
_CONVOLUTIONS = [transform(f"transform.transforms[0].blur[{n}]", "Conv2d", 0.12) for n in range(2)]
_TENSOR = transform("transform.transforms[2]", "ToTensor", 0.1, "3x224x224 float32")
_SMALL_BLUR = {**_BLUR, "path": "transform.transforms[1]", "output": "224x224 RGB"}
_FIRST_CROP = {**_CROP, "path": "transform.transforms[0]"}
_V2 = {f"transform.transforms[{n}]": "torchvision.transforms.v2._misc" for n in range(3)}
_LEVELS = {"id": "few-levels", "path": "[0]", "what": "float32 with 256 different values", "bytes_saved": 3e7}


def _augment(*rows, held="augment", environment=None, **evidence):
    return held_by(held, evidence={"transforms": list(rows), **evidence}, environment=environment or {})


_BLURS = _augment(_BLUR, _CROP, _TENSOR)
_CONVERTS = _augment(
    {**_BLUR, "share": 0.4}, {**_TENSOR, "share": 0.5}, payload={"bytes": 4e7, "savings": [_LEVELS]}
)  # fmt: skip
_GPU = {"device": "cuda:0"}

CASES = (
    RuleCase(
        "costliest-transform",
        deserves=_BLURS,
        healthy=_augment(*({**row, "share": 0.25} for row in (_BLUR, _CROP, _TENSOR))),
        stage="augment",
    ),
    RuleCase(  # a costly transform of a stage that delays nothing
        "costliest-transform",
        deserves=_BLURS,
        healthy=replace(_BLURS, **{k: getattr(held_by("load"), k) for k in ("coupled", "drained", "without")}),
        stage="augment",
    ),
    RuleCase(  # a module of the user's, whose parts are transforms as well; a composition of the same parts is none
        "costliest-transform",
        deserves=_augment(_OWN_BLUR, *_CONVOLUTIONS, _CROP),
        healthy=_augment({**_OWN_BLUR, "share": 0.02}, *_CONVOLUTIONS, _CROP),
        stage="augment",
    ),
    RuleCase("crop-before", deserves=_BLURS, healthy=_augment(_FIRST_CROP, _SMALL_BLUR, _TENSOR), stage="augment"),
    RuleCase(  # nearly as many pixels behind the crop, and transforms of two compositions
        "crop-before",
        deserves=_BLURS,
        healthy=_augment({**_BLUR, "output": "256x256 RGB"}, _CROP, {**_BLUR, "path": "before.transforms[0]"}),
        stage="augment",
    ),
    RuleCase(
        "uint8-until-device",
        deserves=_CONVERTS,
        healthy=replace(_CONVERTS, evidence={**_CONVERTS.evidence, "payload": {"bytes": 4e7, "savings": []}}),
        stage="augment",
    ),
    RuleCase(
        "uint8-until-device",
        deserves=_CONVERTS,
        healthy=_augment(_BLUR, {**_TENSOR, "share": 0.02}, payload=_CONVERTS.evidence["payload"]),
        stage="augment",
    ),
    RuleCase(
        "augment-on-device",
        deserves=_augment(_FIRST_CROP, _SMALL_BLUR, loader={"transform_modules": _V2}, environment=_GPU),
        healthy=_augment(_FIRST_CROP, _SMALL_BLUR, loader={"transform_modules": _V2}, environment={"device": "cpu"}),
        stage="augment",
    ),
    RuleCase(  # an augmentation that waits for something does so on a device as well
        "augment-on-device",
        deserves=_augment(_FIRST_CROP, _SMALL_BLUR, loader={"transform_modules": _V2}, environment=_GPU),
        healthy=with_stage(
            _augment(_FIRST_CROP, _SMALL_BLUR, loader={"transform_modules": _V2}, environment=_GPU),
            "augment",
            "augment",
            wall_s_per_batch=0.0145,
            cpu_s_per_batch=0.001,
        ),
        stage="augment",
    ),
)
