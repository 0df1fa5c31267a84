"""Records on disk: what a training or a sweep left, who may write it, and under which key it is found."""
