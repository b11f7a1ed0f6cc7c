"""What Paddle says when the memory of a GPU runs out, and who says so."""

# As Paddle 2.6 and 3.x raise them.
ALLOCATION = """

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::experimental::matmul(paddle::Tensor const&, paddle::Tensor const&, bool, bool)

----------------------
Error Message Summary:
----------------------
ResourceExhaustedError: 

Out of memory error on GPU 0. Cannot allocate 15.503906GB memory on GPU 0, 28.770508GB memory has been allocated and available memory is only 716.750000MB.

Please check whether there is any other process using GPU 0.
1. If yes, please stop them, or start PaddlePaddle on another GPU.
2. If no, please decrease the batch size of your model. 
 (at ../paddle/fluid/memory/allocation/cuda_allocator.cc:86)
"""  # noqa: E501, W291
SAID = "15.50 GiB requested, 28.77 GiB in use, 0.70 GiB free"


def no_memory(*_):
    raise MemoryError(ALLOCATION)
