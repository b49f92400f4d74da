import torch

from fedaction.evaluation.accuracy import confusion


def test_rows_are_true_and_columns_predicted():
    found = confusion(torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 1, 1, 0, 2]), 4)
    assert found.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
