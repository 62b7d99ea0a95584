# SPDX-License-Identifier: Apache-2.0
"""What OpenAI's client is to make of replies: a schema's object, and a tool's arguments."""
from typing import Literal

from pydantic import BaseModel, Field


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)


class GetWeather(BaseModel):
    """The weather of a city."""
    city: str = Field(max_length=20)
    unit: Literal["celsius", "fahrenheit"]
