"""The paper's evidence again: every table and figure, with our code, beside the published figures."""
