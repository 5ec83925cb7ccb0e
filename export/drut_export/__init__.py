"""Offline part of drut: from a decision checkpoint to a verified ONNX bundle.

Needs the extra `drut[export]`. `python -m drut_export` and `drut export` run it; from Python,
`drut_export.repository.export_checkpoint` does the whole job.
"""
