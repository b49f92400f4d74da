"""Runs an exported model with onnxruntime and NumPy alone.

python onnx_numpy.py MODEL.onnx RECORDINGS.npy, of shape (N, *shape): windows of signals, or skeletons, that have the
model's number of frames.
"""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
card = json.loads(session.get_modelmeta().custom_metadata_map["fedaction"])["card"]
shape, classes = card["input"]["shape"], card["classes"]
x = np.load(sys.argv[2]).astype(np.float32).reshape(-1, *shape)
logits = session.run(None, {session.get_inputs()[0].name: x})[0]
scores = np.exp(logits - logits.max(1, keepdims=True))
for row in scores / scores.sum(1, keepdims=True):
    print(f"{classes[row.argmax()]}  {row.max():.1%}")
