"""A fitted model put to work elsewhere: JSON with small scorers, one file of code, SQL, ONNX."""
