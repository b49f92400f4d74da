"""UTD-MHAD's inertial recordings: the same trials as `utd_mhad`'s skeletons, from one worn sensor.

The sensor sits on the right wrist for actions 1 to 21 and on the right thigh for 22 to 27. It has no clock in common
with the camera: the two recordings of a trial differ in length.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.data.files import to_float32
from fedaction.data.matlab import read_matrix
from fedaction.data.public.files import NumberedFiles
from fedaction.data.public.utd_mhad import CLASSES


def _read(path: Path) -> npt.NDArray[np.float32]:
    """One file as (T, 6): acceleration in g, then angular velocity in degrees a second, in the sensor's axes."""
    given = read_matrix(path, "d_iner")
    if given.ndim != 2 or given.shape[1] != 6 or not len(given):
        raise ValueError(f"{path}: d_iner has shape {given.shape}; expected (samples, 6)")
    return to_float32(given)


READER = NumberedFiles(
    name="utd_inertial",
    rate_hz=50.0,
    about=(
        "UTD-MHAD's inertial sensor, 27 actions by 8 people; expects "
        "Inertial/a<action>_s<person>_t<trial>_inertial.mat"
    ),
    pattern=re.compile(r"(?P<name>a(?P<action>\d+)_s(?P<subject>\d+)_t\d+)_inertial\.mat"),
    classes=CLASSES,
    train=(1, 3, 5, 7),
    test=(2, 4, 6, 8),
    parse=_read,
    folder="utd_mhad",
    channels=("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y", "gyr_z"),
)
