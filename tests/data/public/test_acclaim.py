"""Forward kinematics against a skeleton small enough to work out by hand, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaction.data.public.acclaim import positions, read_amc, read_asf

INCH = 0.0254
ASF = """# two bones, the second of which stands in axes of its own
:version 1.10
:name test
:units
  mass 1.0
  length 0.5
  angle deg
:documentation
   begin with nothing
:root
   order TX TY TZ RX RY RZ
   axis XYZ
   position 0 0 0
   orientation 0 0 0
:bonedata
  begin
    id 1
    name fore
    direction 1 0 0
    length 3
    axis 0 0 90 XYZ
    dof rx
    limits (-10.0 170.0)
  end
  begin
    id 2
    name upper
    direction 0 1 0
    length 2
    axis 0 0 0 XYZ
    dof rx ry rz
    limits (-160.0 20.0)
           (-70.0 70.0)
           (-60.0 70.0)
  end
  begin
    id 3
    name still
    direction 0 0 1
    length 1
    axis 0 0 0 XYZ
  end
:hierarchy
  begin
    root upper still
    upper fore
  end
"""
AMC = """#!OML:ASF f\xfcr
:FULLY-SPECIFIED
:DEGREES
1
root 0 0 0 0 0 0
upper 0 0 0
fore 0
2
root 1 2 3 0 90 0
upper 90 0 90
fore 90
"""


def written(tmp_path: Path, asf: str = ASF, amc: str = AMC) -> tuple[Path, Path]:
    first, second = tmp_path / "body.asf", tmp_path / "motion.amc"
    first.write_text(asf, encoding="latin-1")
    second.write_text(amc, encoding="latin-1")
    return first, second


def test_positions_worked_out_by_hand(tmp_path: Path) -> None:
    asf, amc = written(tmp_path)
    skeleton = read_asf(asf)
    assert skeleton.joints == ("root", "upper", "still", "fore")  # parents first
    got = positions(skeleton, read_amc(amc, skeleton)) / (INCH / 0.5)
    # At rest: up two, from there along x three; the third bone along z.
    assert np.allclose(got[0], [(0, 0, 0), (0, 2, 0), (0, 0, 1), (3, 2, 0)])
    # The root turns about y: x to -z, z to x. The upper bone turns about x (y to z), then about z (z stays), then
    # with the root (z to x). The fore bone's own x axis is the world's y: it turns about that (x to -z), then with
    # the upper bone (-z to y, y to -x), then with the root (-x to z).
    assert np.allclose(got[1], [(1, 2, 3), (1 + 2, 2, 3), (1 + 1, 2, 3), (1 + 2, 2, 3 + 3)])


def test_order_of_axes_is_that_of_the_file(tmp_path: Path) -> None:
    asf, amc = written(
        tmp_path, ASF.replace("TX TY TZ RX RY RZ", "TZ TY TX RZ RY RX").replace("dof rx ry rz", "dof rz rx")
    )
    amc.write_text(":DEGREES\n1\nroot 3 2 1 0 90 0\nupper 90 90\nfore 0\n")
    skeleton = read_asf(asf)
    got = positions(skeleton, read_amc(amc, skeleton))[0] / (INCH / 0.5)
    # The upper bone turns about z first (y to -x), then about x, which leaves -x; the root takes -x to z.
    assert np.allclose(got[0], (1, 2, 3)) and np.allclose(got[1] - got[0], (0, 0, 2))


def test_root_may_start_elsewhere(tmp_path: Path) -> None:
    asf, amc = written(tmp_path, ASF.replace("position 0 0 0", "position 1 0 0"))
    skeleton = read_asf(asf)
    assert np.allclose(positions(skeleton, read_amc(amc, skeleton))[0, 0] / (INCH / 0.5), (1, 0, 0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("angle deg", "angle rad", "'rad'"),
        ("length 0.5", "length 0", "a length unit of 0"),
        ("RZ", "L", "the root's order"),
        ("upper fore", "upper", "does not join these bones to the root: fore"),
        ("dof rx\n", "dof tx\n", "only rx, ry and rz"),
        ("direction 1 0 0", "direction 2 0 0", "direction of length 1"),
        ("length 3", "length -3", "not negative"),
        ("direction 0 1 0", "direction 0 nan 0", "three numbers"),
        ("name upper", "name fore", "a second bone"),
        (":root", ":other", "it lacks 'order'"),
    ],
)
def test_faulty_skeletons_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    asf, _ = written(tmp_path, ASF.replace(old, new))
    with pytest.raises(ValueError, match=rf"body\.asf is not a skeleton .*({message})"):
        read_asf(asf)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":DEGREES", ":RADIANS", "does not say :DEGREES"),
        ("fore 90\n", "", "frame 2 lacks fore"),
        ("fore 90\n", "fore 90\nfore 90\n", "line 12: 'fore' with 1 numbers is repeated"),
        ("fore 90\n", "fore 90 0\n", "'fore' with 2 numbers"),
        ("fore 90\n", "tail 90\n", "'tail'"),
        ("fore 90\n", "fore x\n", "line 11: could not convert"),
        (":DEGREES\n1\n", ":DEGREES\n", "before the first frame"),
        (AMC, ":DEGREES\n", "holds no frames"),
    ],
)
def test_faulty_motion_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    asf, amc = written(tmp_path, amc=AMC.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_amc(amc, read_asf(asf))
